// Sends notices to the kernel that it did not ask for.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/guarded.hpp"
#include "base/thread_pool.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/inode_table.hpp"

namespace copper {

// Thread-safe. `session` must outlive this object, `inodes` the call of end().
class Notifier {
  public:
    Notifier(fuse_session* session, InodeTable& inodes) : session_(session), inodes_(inodes) {}

    // The kernel's attributes of a file are out of date. Does not wait.
    void attributes(InodeId inode);

    // The bytes that the kernel keeps of a file, or the names of a directory, are not to be kept.
    void content(InodeId inode);

    // What the kernel knows under a name is out of date. `then` runs once, when the kernel has dropped that.
    void name(InodeId parent, const std::string& name, std::function<void()> then);

    // What the kernel knows of these is out of date. `then` runs once, when the kernel has
    // dropped that: what a program looks up from then on, it asks for. Never, if nothing is mounted any more.
    // On each filesystem, this happens as soon as it can. False: so many refreshes wait already that this one
    // does not. `first` runs before, in another thread.
    [[nodiscard]] bool refresh(std::vector<Refreshed> refreshed, std::function<void()> first,
                               std::function<void()> then);

    // Nothing is mounted any more, so the names are dropped already.
    void stop() { *stopped_ = true; }

    // Call once, as the last call. False if the thread still waits for the kernel, perhaps for a lookup that
    // nobody serves any more. Then `session` must never be destroyed.
    [[nodiscard]] bool end();

  private:
    using Thread = std::unique_ptr<ThreadPool>;
    // Each waits for the kernel where nobody else may: to drop a name, until no lookup in the directory is
    // under way; to drop bytes, until no read of them is. Such a read may itself wait for a name to be
    // dropped. A refresh drops many, and may wait for one directory alone. All of them wait as long as their
    // filesystem hangs, so each filesystem has threads of its own.
    static constexpr std::size_t refreshes_max = 8;  // at once
    struct Threads {
        Thread names = make_thread();
        Thread contents = make_thread();
        Thread refreshes = make_thread(refreshes_max);
    };
    struct Part;
    class Refresh;

    static Thread make_thread(std::size_t threads = 1) {
        return std::make_unique<ThreadPool>(
            ThreadPool::Options{.threads_max = threads, .queued_max = waiting_max});
    }
    bool submit(NumberSpace filesystem, Thread Threads::*thread, ThreadPool::Job job);

    static constexpr std::size_t waiting_max = 1024;
    fuse_session* const session_;
    InodeTable& inodes_;
    const std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
    Guarded<std::map<NumberSpace, Threads>> threads_;
    Guarded<std::vector<std::future<void>>> under_way_;  // the ends of refreshes
    Thread planner_ = make_thread();                     // waits for nothing
};

}  // namespace copper
