#include "cache/backing/path_opener.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#endif

#include <utility>

#include "base/path.hpp"
#include "cache/backing/calls.hpp"

namespace copper {
namespace {

constexpr int links_max = 40;  // like path_resolution(7)

UniqueFd open_without_links([[maybe_unused]] const char* path, [[maybe_unused]] int flags) {
#if defined(SYS_openat2) && defined(RESOLVE_NO_SYMLINKS)
    open_how how{};
    how.flags = static_cast<unsigned>(flags);
    how.resolve = RESOLVE_NO_SYMLINKS;
    return UniqueFd(static_cast<int>(
        retry_eintr([&] { return ::syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how); })));
#else
    errno = ENOSYS;
    return UniqueFd();
#endif
}

// The target of `path` if it is a symbolic link; otherwise an empty text.
SystemResult<std::string> link_target(const std::string& path, ReadCounters& counters) {
    auto target = readlink_at(AT_FDCWD, path, counters);
    return target || target.error() != EINVAL ? target : SystemResult<std::string>();
}

// `path` with all symbolic links on the way resolved. Leaves the last component as it is, and stops early
// where `is_enough` is true for the place reached and the rest of the path.
template <typename IsEnough>
SystemResult<std::string> resolve_links(const std::string& path, const MountMap& mounts,
                                        ReadCounters& counters, IsEnough is_enough) {
    std::string resolved = "/";
    std::string rest = path;
    for (int links = 0; links <= links_max;) {
        rest.erase(0, rest.find_first_not_of('/'));
        const auto name = rest.substr(0, rest.find('/'));
        rest.erase(0, name.size());
        if (name == "..") {
            resolved = std::string(parent_path(resolved));
        } else if (!name.empty() && name != ".") {
            auto next = join_path(resolved, name);
            if (rest.find_first_not_of('/') == std::string::npos || is_enough(next, rest)) {
                return next + rest;
            }
            if (const auto obstacle = mounts.obstacle(next)) {
                return tl::unexpected(error_of(obstacle->kind));
            }
            const auto target = link_target(next, counters);
            if (!target) {
                return tl::unexpected(target.error());
            }
            if (target->empty()) {
                resolved = std::move(next);
                continue;
            }
            rest = *target + '/' + rest;
            resolved = target->front() == '/' ? "/" : resolved;
            ++links;
        } else if (rest.empty()) {
            return resolved;
        }
    }
    return tl::unexpected(ELOOP);
}

bool climbs(std::string_view path) {
    return path.find("/../") != std::string_view::npos || path.ends_with("/..");
}

}  // namespace

int error_of(MountMap::Walk kind) {
    return kind == MountMap::Walk::copper_mount ? ELOOP : ENOENT;
}

PathOpener::Method PathOpener::detect() {
    return open_without_links("/", O_PATH | O_CLOEXEC) ? Method::openat2 : Method::resolve_first;
}

// If nothing was mounted on the way meanwhile, the opened file is the one that the mount table describes.
// Opening may change the table: an automounter mounts an idle filesystem again.
SystemResult<PathOpener::Opened> PathOpener::open_resolved(const std::string& path, int flags,
                                                           ReadCounters& counters) {
    constexpr int attempts_max = 3;
    for (int attempt = 1;; ++attempt) {
        auto mounts = mounts_.current();
        auto opened = open_once(path, flags, mounts, counters);
        const auto mounts_now = mounts_.current();
        const bool is_same =
            mounts_now == mounts || (opened && opened->path == path && mounts_now->agrees(*mounts, path));
        if (is_same || attempt == attempts_max) {
            if (mounts_now->is_lost(opened ? opened->path : path)) {
                return tl::unexpected(ESTALE);
            }
            return opened;
        }
    }
}

SystemResult<PathOpener::Opened> PathOpener::open_once(const std::string& path, int flags,
                                                       std::shared_ptr<const MountMap> mounts,
                                                       ReadCounters& counters) {
    if (const auto obstacle = mounts->obstacle(path)) {
        return tl::unexpected(error_of(obstacle->kind));
    }
    if (method_ == Method::openat2) {
        if (auto fd = open_without_links(path.c_str(), flags)) {
            return Opened{std::move(fd), path, std::move(mounts)};
        }
        if (errno != ELOOP || links_ == Links::refuse) {
            return tl::unexpected(errno);
        }
    }
    // "/." makes the last component one on the way, too.
    auto resolved = resolve_links((flags & O_NOFOLLOW) != 0 ? path : path + "/.", *mounts, counters,
                                  [](const auto&, const auto&) { return false; });
    if (!resolved) {
        return tl::unexpected(resolved.error());
    }
    if (links_ == Links::refuse && *resolved != path) {
        return tl::unexpected(ELOOP);
    }
    if (const auto obstacle = mounts->obstacle(*resolved)) {
        return tl::unexpected(error_of(obstacle->kind));
    }
    UniqueFd fd(retry_eintr([&] { return ::open(resolved->c_str(), flags | O_NOFOLLOW); }));
    if (!fd) {
        return tl::unexpected(errno);
    }
    return Opened{std::move(fd), std::move(*resolved), std::move(mounts)};
}

bool PathOpener::leads_into(const Trees& trees, const std::string& target, ReadCounters& counters) {
    if (!target.starts_with('/')) {
        return false;
    }
    const auto mounts = mounts_.current();
    const auto resolved = resolve_links(target + "/.", *mounts, counters,
                                        [&](const std::string& place, const std::string& rest) {
                                            return trees.contains(place) && !climbs(rest);
                                        });
    // If the link leads nowhere (yet), its text decides.
    const auto place = normalise_path(resolved.value_or(target));
    return place && trees.contains(*place) && !mounts->obstacle(*place);
}

SystemResult<PathOpener::Opened> PathOpener::open(const std::string& path, int flags,
                                                  ReadCounters& counters) {
    return open_resolved(path, flags | O_CLOEXEC | O_NOFOLLOW, counters);
}

SystemResult<PathOpener::Opened> PathOpener::open_parent(const std::string& path, ReadCounters& counters) {
    return open_resolved(std::string(parent_path(path)), O_PATH | O_DIRECTORY | O_CLOEXEC, counters);
}

}  // namespace copper
