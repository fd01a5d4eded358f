// Fetching ahead what lies beside the files that a program uses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/cache.hpp"

namespace copper {

// An import uses most modules of a package, one after the other, and each waits for a slow filesystem by
// itself. So once a program has used several files of a directory with the same suffix, others are fetched at
// the same time: their attributes if the files were looked up, and their bytes if they were read. A
// filesystem that answers at once gains nothing by that, and is left alone.
//
// What was fetched and was not used yet stays within a window. The window grows by one for each file that is
// used: so no more is fetched in vain than was used before, and a few.
//
// Thread-safe.
class Siblings {
  public:
    enum class Use : std::uint8_t { looked_up, read };

    static constexpr std::uint32_t noticed_after = 1;  // files
    static constexpr std::size_t window_min = 16;
    static constexpr std::size_t window_max = 128;
    static constexpr std::size_t in_flight_max = 24;  // of a node: demand has readers left
    static constexpr std::size_t groups_max = 512;

    struct Options {
        std::uint64_t file_bytes_max = extent_bytes;  // larger files are not read ahead
    };
    struct Counters {
        std::atomic<std::uint64_t> fetched = 0;
        std::atomic<std::uint64_t> used = 0;  // of those
    };

    // `cache` must outlive what this asks of it, and `counters` this.
    Siblings(Cache& cache, Counters& counters, Options options);
    ~Siblings();

    // A program uses a file.
    void used(const std::string& path, Use use);

  private:
    struct State;
    Counters& counters_;
    const std::shared_ptr<State> state_;  // also of those that wait for objects
};

}  // namespace copper
