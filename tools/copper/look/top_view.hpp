// What `copper top` shows, as lines of text. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/copper/look/statistics.hpp"

namespace copper::cli {

inline constexpr std::size_t top_columns_min = 80;
inline constexpr std::size_t top_lines_min = 24;

struct Sample {
    JobStatistics job;
    std::chrono::steady_clock::time_point at;
};

// At most `height` lines of at most `width` characters, all printable ASCII. Without `before`, no rates.
std::vector<std::string> top_view(const Sample& now, const std::optional<Sample>& before, std::size_t width,
                                  std::size_t height);

}  // namespace copper::cli
