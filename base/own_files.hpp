// Files and directories in places where other users can create files, too, /tmp above all. Each function
// opens first and then checks what it opened, so nobody can exchange the file between check and use.
#pragma once

#include <sys/types.h>

#include <string>

#include <tl/expected.hpp>

#include "base/unique_fd.hpp"

namespace copper {

enum class Missing { refuse, make };

// Opens directory `name` below `parent` (AT_FDCWD for a path), without following a symbolic link at its end.
// It must belong to `owner` and be closed to all others (mode 0700). `make` creates it that way.
tl::expected<UniqueFd, std::string> open_private_directory(int parent, const std::string& name, uid_t owner,
                                                           Missing missing);

// Opens a file for appending. Creates it with `mode` if it is missing. An existing file must be a regular
// file of this user with a single name: otherwise somebody may have planted a link to another file of this
// user. Never blocks.
tl::expected<UniqueFd, std::string> open_own_file(int parent, const std::string& name, mode_t mode);

// Reads a regular file. If it is something else, the error says what. Never blocks, never follows a symbolic
// link.
tl::expected<std::string, std::string> read_regular_file(int parent, const std::string& name,
                                                         std::size_t bytes_max);

// Replaces a file at once, so nobody ever sees a part of it. It gets mode 0600. Makes missing directories,
// for this user alone. If two processes write the same file, the last one stays. A process that is killed may
// leave the unfinished file "<path>.??????".
tl::expected<void, std::string> replace_file(const std::string& path, const std::string& bytes);

// A path to an open file, for functions that take only a path.
std::string path_of(const UniqueFd& fd);

// Why another user could exchange the directory `path`, and how to fix that; empty if nobody can. Only this
// user and root may be able to rename the directory or one above it, or to write into it, or to change a link
// on the way. What does not exist is not checked. REQUIRES: an absolute path.
std::string why_others_can_exchange(const std::string& path);

// Whether others can make something at `path` once nothing is there any more.
bool others_can_make(const std::string& path);

}  // namespace copper
