#include "daemon/secure_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <system_error>

namespace copper {
namespace {

tl::unexpected<std::string> failure(const std::string& name, const std::string& what) {
    return tl::make_unexpected(name + ": " + what);
}

std::string error_text() {
    return std::generic_category().message(errno);
}

}  // namespace

tl::expected<UniqueFd, std::string> open_private_directory(int parent, const std::string& name, uid_t owner,
                                                           Missing missing) {
    constexpr mode_t for_owner_only = 0700;
    if (missing == Missing::make && ::mkdirat(parent, name.c_str(), for_owner_only) != 0 && errno != EEXIST) {
        return failure(name, error_text());
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

}  // namespace copper
