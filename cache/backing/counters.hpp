// Counts the requests to the backing filesystem.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/backing/pace.hpp"
#include "cache/backing_store.hpp"

namespace copper {

// System calls on a filesystem, failed ones included. `listings` counts directories, not calls of getdents64.
// `reads` includes each search for a hole or its end (lseek). Walking a path (O_PATH) does not count.
struct BackingCounters {
    std::atomic<std::uint64_t> listings = 0;
    std::atomic<std::uint64_t> stats = 0;
    std::atomic<std::uint64_t> file_opens = 0;
    std::atomic<std::uint64_t> reads = 0;
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> readlinks = 0;
    std::atomic<std::uint64_t> xattrs = 0;
};

inline std::uint64_t operations_of(const BackingCounters& counters) {
    return counters.listings + counters.stats + counters.file_opens + counters.reads + counters.readlinks +
           counters.xattrs;
}

// Counts the calls of one read, and notes when each begins, and how long those waited that tell the pace of
// the filesystem. Its threads share it.
class ReadCounters {
  public:
    ReadCounters(BackingCounters& counters, ReadProgress& progress, Pace& pace)
        : counters_(counters), progress_(progress), pace_(pace) {}

    // A call that begins.
    void count(std::atomic<std::uint64_t> BackingCounters::*kind) {
        ++(counters_.*kind);
        progress_.note();
    }
    void add_bytes(std::uint64_t bytes) { counters_.bytes += bytes; }
    ReadProgress& progress() const { return progress_; }
    Pace& pace() const { return pace_; }

  private:
    BackingCounters& counters_;
    ReadProgress& progress_;
    Pace& pace_;
};

}  // namespace copper
