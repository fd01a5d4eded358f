// Sends notices to the kernel that it did not ask for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/reader_pool.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/inode_table.hpp"

namespace copper {

// Thread-safe. `session` must outlive this object.
class Notifier {
  public:
    explicit Notifier(fuse_session* session) : session_(session) {}

    // The kernel's attributes of a file are out of date. Does not wait.
    void attributes(NodeId node);

    // The kernel's entry for a name is out of date. Calls `then` once, after the kernel has dropped the
    // entry.
    void name(NodeId parent, const std::string& name, std::function<void()> then);

    // Nothing is mounted any more, so the names are dropped already.
    void stop() { *stopped_ = true; }

    // Call once, as the last call. False if the thread still waits for the kernel, perhaps for a lookup that
    // nobody serves any more. Then `session` must never be destroyed.
    [[nodiscard]] bool end();

  private:
    fuse_session* const session_;
    const std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
    // One thread waits for the kernel, because no other thread may: the kernel drops a name only when no
    // lookup in the directory is under way.
    std::unique_ptr<ReaderPool> thread_ =
        std::make_unique<ReaderPool>(ReaderPool::Options{.threads = 1, .queued_max = 1024});
};

}  // namespace copper
