// Asks a running job to read paths ahead. For `copper prefetch` and `copper launch --prefetch`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/copper/common/failure.hpp"

namespace copper::cli {

// Returns when the job knows of all paths. A path can be given as it is, or under the mount.
Result<void> prefetch(const std::string& mount, const std::vector<std::string>& paths);

// What is being read now, with a bar; at most `columns` wide. `progress`: as verb::prefetch answers.
std::string progress_line(const nlohmann::json& progress, std::size_t columns);

}  // namespace copper::cli
