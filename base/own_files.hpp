// Files and directories in places where other users can put something too, /tmp above all. Each function
// opens what is there and checks what it has opened, so nobody can exchange it in between.
#pragma once

#include <sys/types.h>

#include <string>

#include <tl/expected.hpp>

#include "base/unique_fd.hpp"

namespace copper {

enum class Missing { refuse, make };

// Opens directory `name` below `parent` (AT_FDCWD for a path), without following a symbolic link at its end.
// It must belong to `owner` and be closed to all others (mode 0700). `make` creates it so.
tl::expected<UniqueFd, std::string> open_private_directory(int parent, const std::string& name, uid_t owner,
                                                           Missing missing);

// Opens a file for appending, and creates it with `mode` if it is missing. A file that is there already must
// be a regular file of this user, under no other name: else somebody may have put a link to another file of
// this user there. Never blocks.
tl::expected<UniqueFd, std::string> open_own_file(int parent, const std::string& name, mode_t mode);

// The text of a regular file. The error says what else is there. Never blocks, and follows no symbolic link.
tl::expected<std::string, std::string> read_regular_file(int parent, const std::string& name,
                                                         std::size_t bytes_max);

// How to name an open file to whoever takes only a path.
std::string path_of(const UniqueFd& fd);

// What lets another user exchange the directory `path`, in words with what to do about it; empty if nothing
// does. Only this user and root may be able to rename it or a directory above it, and to write into it.
// REQUIRES: an absolute, normalised path, whose directories exist.
std::string why_others_can_exchange(const std::string& path);

}  // namespace copper
