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

#include "base/error_text.hpp"
#include "base/processes.hpp"
#include "base/unique_fd.hpp"

namespace copper {
namespace {

constexpr const char* unmount_helper = "fusermount3";

std::optional<std::string> obstacle_in_device() {
    const UniqueFd device(retry_eintr([] { return ::open("/dev/fuse", O_RDWR | O_CLOEXEC); }));
    if (device) {
        return std::nullopt;
    }
    switch (errno) {
        case ENOENT:
        case ENODEV:
        case ENXIO:
            return "there is no /dev/fuse: load the kernel's fuse module (modprobe fuse), or in a container "
                   "pass the "
                   "device in (--device /dev/fuse)";
        case EACCES:
        case EPERM:
            return "no permission to open /dev/fuse: ask for read and write permission on it (its usual mode "
                   "is 0666)";
        default:
            return "cannot open /dev/fuse: " + error_text();
    }
}

bool configured_for_other_users() {
    std::ifstream configuration("/etc/fuse.conf");
    for (std::string line; std::getline(configuration, line);) {
        line.erase(std::remove_if(line.begin(), line.end(), ::isspace), line.end());
        if (line == "user_allow_other") {
            return true;
        }
    }
    return false;
}

// Root mounts directly; other users need the set-user-id helper.
std::optional<std::string> obstacle_in_rights(Audience audience) {
    if (::geteuid() == 0) {
        return std::nullopt;
    }
    const auto helper = find_program(unmount_helper);
    if (!helper) {
        return "fusermount3 is not installed, and only root can mount without it: install the package fuse3";
    }
    struct stat st {};
    if (::stat(helper->c_str(), &st) != 0 || st.st_uid != 0 || (st.st_mode & S_ISUID) == 0) {
        return *helper + " is not set-user-id root, so it cannot mount: chown root:root and chmod u+s it";
    }
    if (audience == Audience::everyone && !configured_for_other_users()) {
        return "a mirror that other users see must be allowed: add the line user_allow_other to "
               "/etc/fuse.conf, or "
               "launch without --allow-other";
    }
    return std::nullopt;
}

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
    std::string program = unmount_helper;
    std::string options[] = {how == Unmounting::lazily ? "-uz" : "-u", "-q", "--"};
    char* arguments[] = {program.data(),    options[0].data(),  options[1].data(),
                         options[2].data(), mount_point.data(), nullptr};
    pid_t child = 0;
    if (::posix_spawnp(&child, unmount_helper, nullptr, nullptr, arguments, environ) == 0) {
        int status = 0;
        retry_eintr([&] { return ::waitpid(child, &status, 0); });
    }
}

}  // namespace

std::optional<std::string> obstacle_to_mount(const std::string& mount_point, Audience audience) {
    if (auto obstacle = obstacle_in_directory(mount_point)) {
        return obstacle;
    }
    if (auto obstacle = obstacle_in_rights(audience)) {
        return obstacle;
    }
    return obstacle_in_device();
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
