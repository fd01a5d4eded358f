#include "base/own_files.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>

#include "base/error_text.hpp"
#include "base/path.hpp"

namespace copper {
namespace {

constexpr mode_t for_owner_only = 0700;
constexpr int links_max = 40;  // as in the kernel
constexpr mode_t writable_by_group = S_IWGRP;
constexpr mode_t writable_by_others = S_IWGRP | S_IWOTH;

tl::unexpected<std::string> failure(const std::string& name, const std::string& what) {
    return tl::make_unexpected(name + ": " + what);
}

std::string in_octal(mode_t mode) {
    std::array<char, 8> text = {};
    std::snprintf(text.data(), text.size(), "%04o", mode & 07777U);
    return text.data();
}

// A user namespace that does not map root shows this user instead of root, as for everybody it does not map.
constexpr uid_t user_not_mapped = 65534;

bool maps_every_user() {
    std::ifstream map("/proc/self/uid_map");
    std::uint64_t first = 1;
    std::uint64_t outside = 1;
    std::uint64_t count = 0;
    map >> first >> outside >> count;
    return first == 0 && outside == 0 && count >= 0xffffffffU;
}

bool is_trusted(uid_t user) {
    return user == ::geteuid() || user == 0 || (user == user_not_mapped && !maps_every_user());
}

// Many sites give each user a group with the user's name, and let that group write by default.
bool is_group_of_one(gid_t group) {
    const passwd* user = ::getpwuid(::geteuid());
    if (user == nullptr || user->pw_gid != group) {
        return false;
    }
    const std::string name = user->pw_name;
    const struct group* found = ::getgrgid(group);
    return found != nullptr && name == found->gr_name && found->gr_mem[0] == nullptr;
}

bool lets_others_make_files(const struct stat& directory) {
    if ((directory.st_mode & writable_by_others) == 0) {
        return false;
    }
    return (directory.st_mode & writable_by_others) != writable_by_group ||
           !is_group_of_one(directory.st_gid);
}

// In a sticky directory, only the owner of the directory and the owner of a file can rename the file.
bool lets_others_exchange_files(const struct stat& directory) {
    return (directory.st_mode & S_ISVTX) == 0 && lets_others_make_files(directory);
}

std::string fault_of(const std::string& path, const struct stat& found) {
    if (!is_trusted(found.st_uid)) {
        return path + ": belongs to user " + std::to_string(found.st_uid) + ", who could replace it";
    }
    if (S_ISLNK(found.st_mode)) {
        return {};
    }
    if (!S_ISDIR(found.st_mode)) {
        return path + ": is not a directory";
    }
    if (lets_others_exchange_files(found)) {
        return path + ": other users may write there (its mode is " + in_octal(found.st_mode) +
               "); close it (chmod go-w " + path + ")";
    }
    return {};
}

// Its names, in front of those in `rest`.
void put_in_front(const std::filesystem::path& path, std::deque<std::string>& rest) {
    const std::filesystem::path relative = path.relative_path();
    rest.insert(rest.begin(), relative.begin(), relative.end());
}

enum class Kind : std::uint8_t { own_file, removed, other };
Kind kind_of(int fd) {
    struct stat found = {};
    if (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != ::geteuid() ||
        found.st_nlink > 1) {
        return Kind::other;
    }
    return found.st_nlink == 1 ? Kind::own_file : Kind::removed;
}

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
           (::mkdir(path.c_str(), for_owner_only) == 0 || errno == EEXIST);
}

}  // namespace

tl::expected<UniqueFd, std::string> open_private_directory(int parent, const std::string& name, uid_t owner,
                                                           Missing missing) {
    if (missing == Missing::make) {
        // umask(2) may keep the owner out.
        const bool made = ::mkdirat(parent, name.c_str(), for_owner_only) == 0 &&
                          ::fchmodat(parent, name.c_str(), for_owner_only, 0) == 0;
        if (!made && errno != EEXIST) {
            return failure(name, error_text());
        }
    }
    UniqueFd fd(retry_eintr(
        [&] { return ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
    if (!fd) {
        return failure(name, errno == ENOTDIR || errno == ELOOP ? "is not a directory" : error_text());
    }
    struct stat found = {};
    if (::fstat(fd.get(), &found) != 0) {
        return failure(name, error_text());
    }
    if (found.st_uid != owner) {
        return failure(name, "belongs to user " + std::to_string(found.st_uid) + ", not to user " +
                                 std::to_string(owner) +
                                 "; it may be an attempt to intercept Copper's control socket");
    }
    if ((found.st_mode & 077U) != 0) {
        return failure(name, "is open to other users; its mode must be 0700");
    }
    return fd;
}

tl::expected<UniqueFd, std::string> open_own_file(int parent, const std::string& name, mode_t mode) {
    constexpr int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    // Another process may remove it at a bad moment (a lock that it gives up).
    constexpr int attempts_max = 1000;
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
        // This user made the file, whatever owner the filesystem reports (NFS may report nobody instead of
        // root).
        UniqueFd fd(
            retry_eintr([&] { return ::openat(parent, name.c_str(), flags | O_CREAT | O_EXCL, mode); }));
        if (fd) {
            return fd;
        }
        if (errno != EEXIST) {
            return failure(name, error_text());
        }
        fd = UniqueFd(retry_eintr([&] { return ::openat(parent, name.c_str(), flags); }));
        if (!fd && errno == ENOENT) {
            continue;
        }
        if (!fd && errno != ELOOP && errno != ENXIO) {
            return failure(name, error_text());
        }
        const auto kind = fd ? kind_of(fd.get()) : Kind::other;
        if (kind == Kind::own_file) {
            return fd;
        }
        if (kind == Kind::other) {
            break;
        }
    }
    return failure(name, "is a link, a file of another user, or not a regular file; remove it");
}

tl::expected<std::string, std::string> read_regular_file(int parent, const std::string& name,
                                                         std::size_t bytes_max) {
    // Opening a FIFO would block until somebody writes.
    const UniqueFd fd(retry_eintr([&] {
        return ::openat(parent, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }));
    struct stat found = {};
    if (!fd || ::fstat(fd.get(), &found) != 0) {
        return failure(name, error_text());
    }
    if (!S_ISREG(found.st_mode)) {
        return failure(name, "is not a regular file");
    }
    std::string text;
    std::array<char, 4096> buffer;
    while (text.size() <= bytes_max) {
        const ssize_t got = retry_eintr([&] { return ::read(fd.get(), buffer.data(), buffer.size()); });
        if (got < 0) {
            return failure(name, error_text());
        }
        if (got == 0) {
            return text;
        }
        text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return failure(name, "is longer than " + std::to_string(bytes_max) + " bytes");
}

tl::expected<void, std::string> replace_file(const std::string& path, const std::string& bytes) {
    const std::string directory(parent_path(path));
    if (!make_directories(directory)) {
        return failure(directory, error_text());
    }
    std::string temporary = path + ".XXXXXX";
    const UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!file) {
        return failure(temporary, error_text());
    }
    if (write_all(file, bytes) && ::rename(temporary.c_str(), path.c_str()) == 0) {
        return {};
    }
    const auto error = failure(path, error_text());
    ::unlink(temporary.c_str());
    return error;
}

std::string path_of(const UniqueFd& fd) {
    return "/proc/self/fd/" + std::to_string(fd.get());
}

std::string why_others_can_exchange(const std::string& path) {
    // Goes down from the root: nobody can exchange what is being checked, because what is above it is safe.
    std::string checked = "/";  // without links
    std::deque<std::string> rest;
    put_in_front(path, rest);
    rest.push_front(".");
    for (int links = 0; !rest.empty();) {
        const std::string name = rest.front();
        rest.pop_front();
        if (name == "..") {
            checked = std::string(parent_path(checked));
            continue;
        }
        std::string place = checked;
        if (!name.empty() && name != ".") {
            place += (checked == "/" ? "" : "/") + name;
        }
        struct stat found = {};
        if (::lstat(place.c_str(), &found) != 0) {
            return errno == ENOENT ? std::string() : place + ": " + error_text();
        }
        if (auto fault = fault_of(place, found); !fault.empty()) {
            return fault;
        }
        if (!S_ISLNK(found.st_mode)) {
            checked = place;
            continue;
        }
        std::error_code error;
        const auto target = std::filesystem::read_symlink(place, error);
        if (error || ++links > links_max) {
            return place + ": " + (error ? error.message() : "too many links");
        }
        put_in_front(target, rest);
        checked = target.is_absolute() ? "/" : checked;
    }
    return {};
}

bool others_can_make(const std::string& path) {
    struct stat found = {};
    return ::stat(std::string(parent_path(path)).c_str(), &found) != 0 || lets_others_make_files(found);
}

}  // namespace copper
