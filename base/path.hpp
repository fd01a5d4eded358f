// Absolute paths of the backing filesystem, as text.
//
// Inside Copper a path is always *normalised*: it starts with '/', has no empty, "." or ".." component and no
// slash at its end (the root is "/"). Any byte but NUL may stand in a name; nothing assumes UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace copper {

// The longest path (PATH_MAX of <limits.h>) and name (NAME_MAX) that Copper carries.
inline constexpr std::size_t path_bytes_max = 4096;
inline constexpr std::size_t name_bytes_max = 255;

// Collapses doubled slashes and "." components and drops a slash at the end. Returns nothing for a path that
// is relative, has a ".." component (resolving it as text would be wrong across symbolic links), or is too
// long.
std::optional<std::string> normalise_path(std::string_view path);

bool is_normalised_path(std::string_view path);

// A name that may stand in a Listing: not empty, not "." or "..", no slash, no NUL, at most name_bytes_max.
bool is_valid_name(std::string_view name);

// Parent of "/a/b" is "/a", of "/a" and of "/" it is "/".
std::string_view parent_path(std::string_view path);

// The last component; empty for the root.
std::string_view base_name(std::string_view path);

std::string join_path(std::string_view directory, std::string_view name);

// True for `ancestor` itself and everything below it.
bool is_within(std::string_view path, std::string_view ancestor);

}  // namespace copper
