#include "profile/profile_file.hpp"

#include <fcntl.h>

#include "base/own_files.hpp"

namespace copper {

tl::expected<Profile, std::string> read_profile(const std::string& path) {
    const auto bytes = read_regular_file(AT_FDCWD, path, profile_bytes_max);
    if (!bytes) {
        return tl::unexpected(bytes.error());
    }
    auto profile = decode_profile(*bytes);
    return profile ? std::move(profile) : tl::unexpected(path + ": " + profile.error());
}

tl::expected<void, std::string> write_profile(const std::string& path, const Profile& profile) {
    return replace_file(path, encode(profile));
}

}  // namespace copper
