// What the backing filesystem was asked.
#pragma once

#include <atomic>
#include <cstdint>

namespace copper {

// System calls made on a filesystem, failed ones too. `listings` counts directories read, whatever number of
// getdents64 that took. Walking a path (O_PATH) is not counted.
struct BackingCounters {
    std::atomic<std::uint64_t> listings = 0;
    std::atomic<std::uint64_t> stats = 0;
    std::atomic<std::uint64_t> file_opens = 0;
    std::atomic<std::uint64_t> reads = 0;
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> readlinks = 0;
    std::atomic<std::uint64_t> xattrs = 0;
};

}  // namespace copper
