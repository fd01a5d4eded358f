// What this build is.
#pragma once

#include <string>

namespace copper {

// "copper 0.1.0 (Open MPI, libfuse 3.14.0, RelWithDebInfo)"
std::string version_text(const std::string& program);

}  // namespace copper
