// Directories below /tmp that nobody else can have prepared for us.
#pragma once

#include <sys/types.h>

#include <string>

#include <tl/expected.hpp>

#include "cache/unique_fd.hpp"

namespace copper {

enum class Missing { refuse, make };

// Opens directory `name` below `parent` (AT_FDCWD for a path), without following a symbolic link at its end.
// It must belong to `owner` and be closed to all others (mode 0700). `make` creates it so.
tl::expected<UniqueFd, std::string> open_private_directory(int parent, const std::string& name, uid_t owner,
                                                           Missing missing);

}  // namespace copper
