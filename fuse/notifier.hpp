// Tells the kernel what it has not asked for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/reader_pool.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/inode_table.hpp"

namespace copper {

// Thread-safe. `session` must outlive it.
class Notifier {
  public:
    explicit Notifier(fuse_session* session) : session_(session) {}

    // What the kernel knows of a file's attributes is out of date. Waits for nobody.
    void attributes(NodeId node);

    // What the kernel knows under a name is out of date. `then` runs once, when the kernel has dropped that.
    void name(NodeId parent, const std::string& name, std::function<void()> then);

    // Nothing is mounted any more, so names are dropped already.
    void stop() { *stopped_ = true; }

    // Once, with no other calls after it. False if it still waits for the kernel, which may be for a lookup
    // that nobody serves any more. Then `session` must never be destroyed.
    [[nodiscard]] bool end();

  private:
    fuse_session* const session_;
    const std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
    // Its one thread waits for the kernel where nobody else may: the kernel drops a name when no lookup in
    // the directory is under way.
    std::unique_ptr<ReaderPool> thread_ =
        std::make_unique<ReaderPool>(ReaderPool::Options{.threads = 1, .queued_max = 1024});
};

}  // namespace copper
