// Judges by a file's time stamp whether the file could change unnoticed. Internal to cache/backing/.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// Thread-safe. Filesystems stamp changes with a clock that ticks every few milliseconds or only every second
// (Lustre, BeeGFS, ext4 with small inodes). Two changes within one tick look like one. So Copper reads a file
// only after the stamping clock has moved on.
//
// On a local filesystem, that clock is this node's. Otherwise it is a server's clock, which may be minutes
// ahead or behind, and Copper writes nothing that would reveal its time. One bound is known: the server's
// clock shows at least the newest stamp ever seen, plus the time since then by this node's monotonic clock.
// This needs no common time. It assumes that all stamps of a filesystem come from clocks that agree.
//
// Of files that were written in the last minutes, only those with a newer stamp than any before are waited
// for, which are few of many, in whatever order they are read.
class FilesystemClocks {
  public:
    struct Now {
        std::chrono::nanoseconds wall;       // since 1970
        std::chrono::nanoseconds monotonic;  // since an arbitrary start
    };
    using Clock = std::function<Now()>;
    static Now now();

    // A stamp further than this from this node's clock, before or after, counts as old. (Kerberos lets clocks
    // differ by as much.) So a file that changed hours ago needs no further check.
    static constexpr std::chrono::minutes skew_max{5};

    explicit FilesystemClocks(Clock clock = now) : clock_(std::move(clock)) {}

    // How long until a file with this stamp, which was just read, has settled: until another change must get
    // another stamp, so that equal stamps before and after a read prove one version. At most a tick and
    // 205 ms. 0: it has. Calls `is_local` once per filesystem, without a lock.
    std::chrono::milliseconds time_to_settle(std::uint64_t filesystem, const Timestamp& changed,
                                             const std::function<bool()>& is_local);

    // Whether the server may have a newer stamp that its client does not tell yet: clients keep attributes
    // for seconds (sshfs 20, NFS up to 60). Only of a stamp for which time_to_settle() was asked.
    bool may_be_stale(std::uint64_t filesystem, const Timestamp& changed);

    // Learns from a stamp that was just read.
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

    // The least that the filesystem's clock can show now.
    static std::chrono::nanoseconds least(const Known& known, const Now& now);
    // What is known after this stamp.
    Known noted(std::uint64_t filesystem, std::chrono::nanoseconds stamp, const Now& now);

    const Clock clock_;
    Guarded<Table> table_;
};

}  // namespace copper
