#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace copper {

// The text of a system error number. Thread-safe, unlike strerror(3).
inline std::string error_text(int error = errno) {
    return std::generic_category().message(error);
}

}  // namespace copper
