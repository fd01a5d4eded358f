// Profiles as files.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "profile/profile.hpp"

namespace copper {

// Nothing is taken from a file that is not wholly sound. The error names the file and what is wrong with it.
tl::expected<Profile, std::string> read_profile(const std::string& path);

// Replaces the file at once, so nobody ever sees a part of it. Makes missing directories, for this user
// alone. If two jobs write the same file, the last one stays.
tl::expected<void, std::string> write_profile(const std::string& path, const Profile& profile);

}  // namespace copper
