#include "daemon/control/private_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error_text.hpp"
#include "base/own_files.hpp"

namespace copper {
namespace {

constexpr std::string_view prefix = "/tmp/copper-";

std::string usual_directory(uid_t user) {
    return std::string(prefix) + std::to_string(user);
}

bool is_own(const std::string& path, uid_t user) {
    return open_private_directory(AT_FDCWD, path, user, Missing::refuse).has_value();
}

}  // namespace

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
    return found.empty() ? usual_directory(user) : found.front().path;
}

tl::expected<std::string, std::string> make_private_directory() {
    const uid_t user = ::geteuid();
    if (const auto found = private_directories(user); !found.empty()) {
        return found.front().path;
    }
    if (open_private_directory(AT_FDCWD, usual_directory(user), user, Missing::make)) {
        return usual_directory(user);
    }
    std::string elsewhere = usual_directory(user) + ".XXXXXX";
    if (::mkdtemp(elsewhere.data()) == nullptr) {
        return tl::make_unexpected(elsewhere + ": " + error_text());
    }
    return elsewhere;
}

std::string why_elsewhere(const std::string& directory) {
    const std::string usual = usual_directory(::geteuid());
    if (directory == usual) {
        return {};
    }
    const auto opened = open_private_directory(AT_FDCWD, usual, ::geteuid(), Missing::refuse);
    return (opened ? usual + ": is not available" : opened.error()) + "; uses " + directory + " instead";
}

}  // namespace copper
