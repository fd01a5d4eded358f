// Fetching ahead what lies beside the files that a program uses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/cache.hpp"

namespace copper {

// An import uses most modules of a package, one after the other, and each waits for a slow filesystem alone.
// So once a program has used a file of a directory, others with the same suffix are fetched at the same time:
// their attributes if the file was looked up, and their bytes if it was read. A filesystem that answers at
// once gains nothing by that, and is left alone.
//
// Files that were fetched and not used yet stay within a window. Each file that is used widens it. So where
// programs use few files of a directory, few are fetched in vain.
//
// Thread-safe.
class Siblings {
  public:
    enum class Use : std::uint8_t { looked_up, read };

    static constexpr std::size_t window_min = 16;
    static constexpr std::size_t window_max = 128;
    static constexpr std::size_t window_growth = 4;      // for each file used
    static constexpr std::size_t in_flight_max = 24;     // of a node: demand has readers left
    static constexpr std::size_t names_max = 1U << 16U;  // of all directories; then evidence begins anew

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
