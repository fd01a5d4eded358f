#include "base/fuse_access.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/error_text.hpp"
#include "base/processes.hpp"
#include "base/unique_fd.hpp"

namespace copper {
namespace {

bool is_configured_for_everyone() {
    std::ifstream configuration("/etc/fuse.conf");
    for (std::string line; std::getline(configuration, line);) {
        line.erase(std::remove_if(line.begin(), line.end(), ::isspace), line.end());
        if (line == "user_allow_other") {
            return true;
        }
    }
    return false;
}

std::optional<FuseObstacle> obstacle_in_device() {
    const UniqueFd device(retry_eintr([] { return ::open("/dev/fuse", O_RDWR | O_CLOEXEC); }));
    if (device) {
        return std::nullopt;
    }
    switch (errno) {
        case ENOENT:
        case ENODEV:
        case ENXIO:
            return FuseObstacle{"there is no /dev/fuse",
                                "load the kernel's module (modprobe fuse), or give the container the device "
                                "(--device /dev/fuse)"};
        default:
            return FuseObstacle{"cannot open /dev/fuse: " + error_text(),
                                "as root: chmod 666 /dev/fuse; in a container, allow the device"};
    }
}

// Root mounts directly; other users need the set-user-id helper.
std::optional<FuseObstacle> obstacle_in_rights(Audience audience) {
    if (::geteuid() == 0) {
        return std::nullopt;
    }
    const auto helper = find_program(fuse_helper);
    if (!helper) {
        return FuseObstacle{std::string(fuse_helper) + " is not in PATH, and only root can mount without it",
                            "install the package fuse3"};
    }
    struct stat found = {};
    if (::stat(helper->c_str(), &found) != 0 || found.st_uid != 0 || (found.st_mode & S_ISUID) == 0) {
        return FuseObstacle{*helper + " is not set-user-id root, so it cannot mount",
                            "as root: chown root:root and chmod u+s it"};
    }
    if (audience == Audience::everyone && !is_configured_for_everyone()) {
        return FuseObstacle{
            "this node does not allow a mirror that other users see",
            "add the line user_allow_other to /etc/fuse.conf, or launch without --allow-other"};
    }
    return std::nullopt;
}

}  // namespace

std::optional<FuseObstacle> obstacle_in_fuse(Audience audience) {
    auto obstacle = obstacle_in_rights(audience);
    return obstacle ? obstacle : obstacle_in_device();
}

}  // namespace copper
