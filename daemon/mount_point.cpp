#include "daemon/mount_point.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error_text.hpp"
#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "daemon/control/instance.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/options.hpp"

namespace copper {
namespace {

using Obstacle = std::optional<std::string>;

constexpr mode_t for_owner_only = 0700;
constexpr mode_t to_pass_through = 0711;

// No stat: it would ask the daemon that serves this mount, and a stuck daemon would block this one, too.
Obstacle served_already(const std::string& mount, const std::string& batch_job) {
    if (const auto record = find_live_instance(::geteuid(), mount)) {
        return already_served(*record, batch_job);
    }
    if (!is_served(mount)) {
        return std::nullopt;
    }
    if (read_instance(instance_directory(::geteuid(), mount))) {
        return mount +
               ": the dead mount of a Copper that was killed (\"Transport endpoint is not connected\"); " +
               stop_command(mount, StopSpan::this_node) + " clears it";
    }
    return mount + ": a Copper mount already, of another user or without its daemon; " +
           stop_command(mount, StopSpan::this_node) + " clears it if it is dead";
}

Obstacle surroundings(const std::string& mount) {
    switch (MountTable().walk(mount)) {
        case MountTable::Walk::copper_mount:
            return mount + ": lies inside a Copper mount; choose a directory outside of it";
        case MountTable::Walk::kernel_filesystem:
            return mount + ": lies inside a filesystem of the kernel; choose a directory below /tmp";
        case MountTable::Walk::allowed:
            return std::nullopt;
    }
    return std::nullopt;
}

enum class Found { directory, nothing };

tl::expected<Found, std::string> look_at(const std::string& path) {
    struct stat found = {};
    if (::lstat(path.c_str(), &found) != 0) {
        if (errno == ENOENT) {
            return Found::nothing;
        }
        if (errno == ENOTCONN) {
            return tl::make_unexpected(path + ": a dead mount (\"Transport endpoint is not connected\"); " +
                                       stop_command(path, StopSpan::this_node) + " clears it");
        }
        return tl::make_unexpected(path + ": " + error_text());
    }
    if (S_ISLNK(found.st_mode)) {
        return tl::make_unexpected(path +
                                   ": a symbolic link, not a directory; give the directory that it leads to");
    }
    if (!S_ISDIR(found.st_mode)) {
        return tl::make_unexpected(path +
                                   ": a file, not a directory; a mount point must be an empty directory");
    }
    return Found::directory;
}

// mkdir made it, or failed: nobody else can have put it there.
tl::expected<void, std::string> make(const std::string& path, mode_t mode) {
    if (::mkdir(path.c_str(), mode) != 0) {
        return tl::make_unexpected(path + ": cannot make this directory for the mount: " + error_text());
    }
    return {};
}

// A user who can exchange the mount point, or a directory above it, can feed other files to the programs.
Obstacle exchangeable(const std::string& directory) {
    auto why = why_others_can_exchange(directory);
    return why.empty() ? Obstacle() : why + "; or choose another --mount";
}

// All nodes would make, and at the end remove, the same directory.
Obstacle shared(const std::string& directory) {
    const auto mounts = read_mounts();
    const auto root = filesystem_root_of(directory, mounts);
    const bool is_shared = std::ranges::any_of(
        mounts, [&](const Mount& each) { return each.point == root && is_shared_filesystem(each); });
    return is_shared ? directory + " lies on a shared filesystem, where no node makes a mount point"
                     : Obstacle();
}

tl::expected<MadeDirectories, std::string> make_missing(const std::string& mount, Audience audience) {
    const std::string parent(parent_path(mount));
    std::vector<std::string> missing = {mount};
    const auto found = look_at(parent);
    if (!found) {
        return tl::make_unexpected(found.error());
    }
    const bool is_default = parent == parent_path(canonical_mount(default_mount()));
    if (*found == Found::nothing) {
        if (!is_default) {
            return tl::make_unexpected(
                mount + ": its parent directory does not exist; make it, or choose another --mount");
        }
        missing.push_back(parent);
    }
    if (auto obstacle = exchangeable(std::string(parent_path(missing.back())))) {
        return tl::make_unexpected(std::move(*obstacle));
    }
    if (const auto obstacle = shared(std::string(parent_path(missing.back())))) {
        return tl::make_unexpected(mount + ": does not exist, and " + *obstacle +
                                   "; make it, or choose another --mount");
    }
    std::vector<std::string> made;
    for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
        const auto result = make(*path, audience == Audience::everyone ? to_pass_through : for_owner_only);
        // If several nodes share this machine, another node may have made the common parent meanwhile.
        const bool now_there = !result && *path == parent && look_at(parent) == Found::directory;
        const auto obstacle = now_there ? exchangeable(parent) : std::nullopt;
        if ((!result && !now_there) || obstacle) {
            const MadeDirectories undo(std::move(made));
            return tl::make_unexpected(obstacle ? *obstacle : result.error());
        }
        made.insert(made.begin(), *path);
    }
    return MadeDirectories(std::move(made));
}

}  // namespace

MadeDirectories::~MadeDirectories() {
    for (const auto& path : paths_) {
        if (!others_can_make(path)) {
            ::rmdir(path.c_str());  // only if it is empty
        }
    }
}

bool is_served(const std::string& mount) {
    const auto mounts = read_mounts();
    return std::any_of(mounts.begin(), mounts.end(), [&](const Mount& each) {
        return each.point == mount && each.type == copper_filesystem_type;
    });
}

tl::expected<MadeDirectories, std::string> prepare_mount_point(const std::string& mount, Audience audience,
                                                               const std::string& batch_job) {
    if (!is_normalised_path(mount) || mount == "/") {
        return tl::make_unexpected(mount + ": cannot be a mount point");
    }
    if (auto obstacle = served_already(mount, batch_job)) {
        return tl::make_unexpected(std::move(*obstacle));
    }
    if (auto obstacle = surroundings(mount)) {
        return tl::make_unexpected(std::move(*obstacle));
    }
    const auto found = look_at(mount);
    if (!found) {
        return tl::make_unexpected(found.error());
    }
    if (*found == Found::directory) {
        if (auto obstacle = exchangeable(mount)) {
            return tl::make_unexpected(std::move(*obstacle));
        }
        return MadeDirectories();  // Session::mount() reports a directory that is not empty
    }
    return make_missing(mount, audience);
}

std::string closed_directory_above(const std::string& mount) {
    for (std::string path = mount; path != "/";) {
        path = parent_path(path);
        struct stat found = {};
        if (::lstat(path.c_str(), &found) == 0 && (found.st_mode & S_IXOTH) == 0) {
            return path;
        }
    }
    return {};
}

}  // namespace copper
