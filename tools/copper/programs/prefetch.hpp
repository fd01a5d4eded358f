// What `copper prefetch --wait` shows.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

namespace copper::cli {

// What is being read now, with a bar; at most `columns` wide. `progress`: as verb::prefetch answers.
std::string progress_line(const nlohmann::json& progress, std::size_t columns);

}  // namespace copper::cli
