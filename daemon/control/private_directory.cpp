#include "daemon/control/private_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/job_key.hpp"
#include "base/own_files.hpp"

namespace copper {
namespace {

constexpr std::string_view prefix = "/tmp/copper-";

bool is_own(const std::string& path, uid_t user) {
    return open_private_directory(AT_FDCWD, path, user, Missing::refuse).has_value();
}

}  // namespace

std::string usual_private_directory(uid_t user) {
    return std::string(prefix) + std::to_string(user);
}

std::optional<uid_t> owner_named_by(const std::string& directory) {
    if (!directory.starts_with(prefix)) {
        return std::nullopt;
    }
    uid_t user = 0;
    const char* end = directory.data() + directory.size();
    const auto [rest, error] = std::from_chars(directory.data() + prefix.size(), end, user);
    const bool whole =
        rest == end || (*rest == '.' && directory.find('/', prefix.size()) == std::string::npos);
    return error == std::errc() && whole ? std::optional(user) : std::nullopt;
}

std::vector<PrivateDirectory> private_directories(std::optional<uid_t> user) {
    std::vector<PrivateDirectory> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/tmp", error)) {
        const std::string path = entry.path();
        const auto owner = owner_named_by(path);
        if (owner && (!user || *owner == *user) && is_own(path, *owner)) {
            found.push_back({path, *owner});
        }
    }
    std::sort(found.begin(), found.end(), [](const PrivateDirectory& a, const PrivateDirectory& b) {
        return a.user != b.user ? a.user < b.user : a.path < b.path;
    });
    return found;
}

std::string private_directory(uid_t user) {
    const auto found = private_directories(user);
    return found.empty() ? usual_private_directory(user) : found.front().path;
}

std::string another_private_directory() {
    constexpr std::size_t random_digits = 16;
    return usual_private_directory(::geteuid()) + "." + JobKey::random().text().substr(0, random_digits);
}

tl::expected<void, std::string> make_private_directory(const std::string& path) {
    const auto made = open_private_directory(AT_FDCWD, path, ::geteuid(), Missing::make);
    if (made) {
        return {};
    }
    return tl::make_unexpected(made.error() + (why_directory_is_taken(path).empty() ? "" : "; remove it"));
}

std::string why_directory_is_taken(const std::string& path) {
    struct stat found = {};
    if (::lstat(path.c_str(), &found) != 0) {
        return {};
    }
    const auto opened = open_private_directory(AT_FDCWD, path, ::geteuid(), Missing::refuse);
    return opened ? std::string() : opened.error();
}

std::string mount_within(const std::string& private_directory) {
    return private_directory + "/mount";
}

}  // namespace copper
