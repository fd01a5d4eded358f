// The profiles that this user's jobs have recorded.
#pragma once

#include <string>
#include <system_error>
#include <vector>

namespace copper::cli {

// Their files, by name. `error`: why the directory cannot be read.
std::vector<std::string> stored_profiles(std::error_code& error);

}  // namespace copper::cli
