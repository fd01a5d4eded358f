// Asks a running job to read paths ahead. For `copper prefetch` and `copper launch --prefetch`.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/common.hpp"

namespace copper::cli {

// Returns when the job knows of all paths. A path can be given as it is, or under the mount.
Result<void> prefetch(const std::string& mount, const std::vector<std::string>& paths);

}  // namespace copper::cli
