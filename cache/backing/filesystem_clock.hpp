// Judges by its time stamp whether a file may be changing unseen. Internal to cache/backing/.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// What the stamp of a file's last change tells before the file is read.
enum class Rest : std::uint8_t {
    settled,   // another change would get another stamp: equal stamps before and after a read prove one
               // version
    recent,    // another change might get the same stamp
    unproven,  // old enough by this node's clock, but the filesystem's clock may be behind
};

// Thread-safe. Filesystems stamp changes with a clock that ticks every few milliseconds, or only every second
// (Lustre, BeeGFS, ext4 with small inodes). Two changes within one tick look like one. So a file is read only
// when the clock that stamps it has moved on.
//
// On a local filesystem that clock is this node's. Elsewhere it is a server's, minutes ahead or behind
// perhaps, and Copper writes nothing that would show it. What is known of it: it shows at least the newest
// stamp that was ever seen, plus the time since then by this node's monotonic clock. That needs no common
// time. It assumes that one filesystem's stamps come from clocks that agree with each other.
class FilesystemClocks {
  public:
    struct Now {
        std::chrono::nanoseconds wall;       // since 1970
        std::chrono::nanoseconds monotonic;  // since any time
    };
    using Clock = std::function<Now()>;
    static Now now();

    // A stamp that is further than this from this node's clock, in either direction, is not of now. (Kerberos
    // allows clocks to differ by as much.) So a file that changed hours ago costs no look at anything else.
    static constexpr std::chrono::minutes skew_max{5};

    explicit FilesystemClocks(Clock clock = now) : clock_(std::move(clock)) {}

    struct Verdict {
        Rest rest = Rest::settled;
        std::chrono::milliseconds wait{0};  // of what is recent: until it is settled if it does not change
    };
    // Of a stamp that was just read. `is_local` is asked once for each filesystem, without a lock.
    Verdict judge(std::uint64_t filesystem, const Timestamp& changed, const std::function<bool()>& is_local);

    // A stamp that was just read.
    void note(std::uint64_t filesystem, const Timestamp& changed);

  private:
    // Forgetting a filesystem costs a wait.
    static constexpr std::size_t filesystems_max = 64;
    enum class Kind : std::uint8_t { unknown, local, remote };
    struct Known {
        Kind kind = Kind::unknown;
        std::chrono::nanoseconds newest{0};   // stamp
        std::chrono::nanoseconds seen_at{0};  // monotonic
    };
    using Table = std::unordered_map<std::uint64_t, Known>;

    // What the filesystem's clock shows at least.
    static std::chrono::nanoseconds least(const Known& known, const Now& now);
    // With this stamp noted.
    Known noted(std::uint64_t filesystem, std::chrono::nanoseconds stamp, const Now& now);

    const Clock clock_;
    Guarded<Table> table_;
};

}  // namespace copper
