// Absolute paths of the backing filesystem, as text.
//
// Inside Copper every path is *normalised*: it starts with '/', has no empty, "." or ".." component, and does
// not end with a slash (the root is "/"). A name can hold any byte but NUL; nothing assumes UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace copper {

// The longest path (PATH_MAX of <limits.h>) and name (NAME_MAX) that Copper carries.
inline constexpr std::size_t path_bytes_max = 4096;
inline constexpr std::size_t name_bytes_max = 255;

// Collapses doubled slashes and "." components, and drops a slash at the end. Returns nothing if the path is
// relative, too long, or has a ".." component (its meaning depends on symbolic links).
std::optional<std::string> normalise_path(std::string_view path);

bool is_normalised_path(std::string_view path);

// Whether a Listing may hold this name: not empty, not "." or "..", no slash, no NUL, at most name_bytes_max.
bool is_valid_name(std::string_view name);

// The parent of "/a/b" is "/a". The parent of "/a" and of "/" is "/".
std::string_view parent_path(std::string_view path);

// The last component; empty for the root.
std::string_view base_name(std::string_view path);

std::string join_path(std::string_view directory, std::string_view name);

// True for `ancestor` itself and everything below it.
bool is_within(std::string_view path, std::string_view ancestor);

}  // namespace copper
