// The way back to the kernel for one request. Handlers know only this interface, so tests run them without a
// mount.
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

// How long the kernel may repeat an answer without asking.
enum class KernelCaching { forever, never };

// Whether the kernel took the reply. If the request was interrupted, the kernel has not counted its lookups.
enum class Sent { yes, no };

// A local file that the kernel reads instead of asking (passthrough.hpp); 0: none.
using BackingId = std::int32_t;

// Answer it once, from any thread. If destroyed without an answer, it answers EIO, so that no process waits
// for ever.
class Reply {
  public:
    virtual ~Reply() = default;

    virtual void error(int error_number) = 0;
    // Inode 0: no such name.
    virtual Sent entry(InodeId inode, const struct stat& attributes, KernelCaching caching) = 0;
    virtual void attributes(const struct stat& attributes) = 0;
    virtual void link(const std::string& target) = 0;
    virtual Sent opened(BackingId backing) = 0;
    virtual Sent bytes(std::span<const iovec> pieces) = 0;
    virtual void size(std::size_t bytes) = 0;
    virtual void position(std::uint64_t offset) = 0;
    virtual void statistics(const struct statvfs& statistics) = 0;

    // If begin() returns true, the mount stays until end().
    [[nodiscard]] virtual bool begin() { return true; }
    virtual void end() {}
};

using ReplyPtr = std::shared_ptr<Reply>;

// Makes a continuation from a Reply and a function of a result. It does nothing if the session has ended:
// everything that `f` refers to may be gone then.
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
