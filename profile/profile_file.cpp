#include "profile/profile_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/error_text.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/unique_fd.hpp"

namespace copper {
namespace {

constexpr mode_t directory_mode = 0700;

bool write_all(const UniqueFd& file, const std::string& bytes) {
    std::size_t written = 0;
    while (written < bytes.size()) {
        const auto count =
            retry_eintr([&] { return ::write(file.get(), bytes.data() + written, bytes.size() - written); });
        if (count <= 0) {
            return false;
        }
        written += static_cast<std::size_t>(count);
    }
    return ::fsync(file.get()) == 0;
}

bool make_directories(const std::filesystem::path& path) {
    std::error_code error;
    if (path.empty() || std::filesystem::is_directory(path, error)) {
        return true;
    }
    return make_directories(path.parent_path()) &&
           (::mkdir(path.c_str(), directory_mode) == 0 || errno == EEXIST);
}

}  // namespace

tl::expected<Profile, std::string> read_profile(const std::string& path) {
    const auto bytes = read_regular_file(AT_FDCWD, path, profile_bytes_max);
    if (!bytes) {
        return tl::unexpected(bytes.error());
    }
    auto profile = decode_profile(*bytes);
    return profile ? std::move(profile) : tl::unexpected(path + ": " + profile.error());
}

tl::expected<void, std::string> write_profile(const std::string& path, const Profile& profile) {
    const auto failed = [](const std::string& what) { return tl::unexpected(what + ": " + error_text()); };
    const std::string directory(parent_path(path));
    if (!make_directories(directory)) {
        return failed(directory);
    }
    std::string temporary = path + ".XXXXXX";
    const UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!file) {
        return failed(temporary);
    }
    if (write_all(file, encode(profile)) && ::rename(temporary.c_str(), path.c_str()) == 0) {
        return {};
    }
    const auto error = failed(path);
    ::unlink(temporary.c_str());
    return error;
}

}  // namespace copper
