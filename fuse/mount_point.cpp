#include "fuse/mount_point.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/unique_fd.hpp"

namespace copper {
namespace {

std::optional<std::string> obstacle_in_directory(const std::string& mount_point) {
    std::error_code error;
    const bool empty = std::filesystem::is_empty(mount_point, error);
    if (error) {
        return "mount point " + mount_point + ": " + error.message();
    }
    if (!empty) {
        return "mount point " + mount_point + " is not empty: mounting would hide what is in it";
    }
    return std::nullopt;
}

enum class Unmounting { when_unused, lazily };

void run_unmount_helper(std::string mount_point, Unmounting how) {
    std::string program = fuse_helper;
    std::string options[] = {how == Unmounting::lazily ? "-uz" : "-u", "-q", "--"};
    char* arguments[] = {program.data(),    options[0].data(),  options[1].data(),
                         options[2].data(), mount_point.data(), nullptr};
    pid_t child = 0;
    if (::posix_spawnp(&child, fuse_helper, nullptr, nullptr, arguments, environ) == 0) {
        int status = 0;
        retry_eintr([&] { return ::waitpid(child, &status, 0); });
    }
}

}  // namespace

std::optional<std::string> obstacle_to_mount(const std::string& mount_point, Audience audience) {
    if (auto obstacle = obstacle_in_directory(mount_point)) {
        return obstacle;
    }
    const auto obstacle = obstacle_in_fuse(audience);
    return obstacle ? std::optional(obstacle->text + ": " + obstacle->advice) : std::nullopt;
}

void raise_read_ahead(const std::string& mount_point, std::uint64_t bytes) {
    // Ask only for what the kernel knows: a request would go to this daemon itself.
    struct statx found {};
    if (::statx(AT_FDCWD, mount_point.c_str(), AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, 0, &found) != 0) {
        return;
    }
    const std::string device =
        std::to_string(found.stx_dev_major) + ':' + std::to_string(found.stx_dev_minor);
    std::ofstream("/sys/class/bdi/" + device + "/read_ahead_kb") << bytes / 1024;
}

void unmount(const std::string& mount_point) {
    // UMOUNT_NOFOLLOW: somebody may have replaced the path.
    if (::umount2(mount_point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0 && errno == EPERM) {
        run_unmount_helper(mount_point, Unmounting::lazily);
    }
}

void unmount_if_unused(const std::string& mount_point) {
    if (::umount2(mount_point.c_str(), MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 && errno == EPERM) {
        run_unmount_helper(mount_point, Unmounting::when_unused);
    }
}

}  // namespace copper
