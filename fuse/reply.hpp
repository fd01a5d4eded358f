// The way back to the kernel for one request. Handlers know only this, so tests run them without a mount.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "fuse/inode_table.hpp"

namespace copper {

// How long the kernel may answer by itself what it is told.
enum class KernelCaching { forever, never };

// What became of a reply. A request may have been interrupted: then the kernel has not counted its lookups.
enum class Sent { yes, no };

// A local file that the kernel reads by itself instead of asking (passthrough.hpp); 0: none.
using BackingId = std::int32_t;

// Answered once, from any thread. One that is destroyed unanswered answers EIO, so that no process waits for
// ever.
class Reply {
  public:
    virtual ~Reply() = default;

    virtual void error(int error_number) = 0;
    // Node 0: there is no such name.
    virtual Sent entry(NodeId node, const struct stat& attributes, KernelCaching caching) = 0;
    virtual void attributes(const struct stat& attributes) = 0;
    virtual void link(const std::string& target) = 0;
    virtual Sent opened(BackingId backing) = 0;
    virtual Sent bytes(std::span<const iovec> pieces) = 0;
    virtual void size(std::size_t bytes) = 0;
    virtual void statistics(const struct statvfs& statistics) = 0;

    // Between begin(), if it returns true, and end() the mount does not go away under the one who answers.
    [[nodiscard]] virtual bool begin() { return true; }
    virtual void end() {}
};

using ReplyPtr = std::shared_ptr<Reply>;

// Makes a continuation of what to do with a Reply and a result. It does nothing if the session ended
// meanwhile: all that `f` refers to may be gone then.
template <typename F>
auto answering(ReplyPtr reply, F f) {
    return [reply = std::move(reply), f = std::move(f)](const auto& result) {
        if (!reply->begin()) {
            return;
        }
        f(reply, result);
        reply->end();
    };
}

}  // namespace copper
