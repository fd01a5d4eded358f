// Counts which paths the kernel asks for most.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/guarded.hpp"

namespace copper {

// Thread-safe: one lock, held for one step in a hash map, and sometimes for tidying up. Memory is bounded:
// beyond 2 * kept_min paths, only the most requested ones stay. The counts of rare paths then start again
// ("lossy counting", Manku and Motwani, VLDB 2002).
class HotPaths {
  public:
    static constexpr std::size_t kept_min = 1024;

    struct Counts {
        std::uint64_t requests = 1;
        std::uint64_t absent = 0;  // those that found no such name
        std::uint64_t bytes_read = 0;
    };
    void count(std::string_view path, Counts more);

    // The `paths_max` paths with most requests, in descending order.
    std::vector<std::pair<std::string, Counts>> top(std::size_t paths_max);

  private:
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    using Table = std::unordered_map<std::string, Counts, Hash, std::equal_to<>>;

    Guarded<Table> table_;
};

}  // namespace copper
