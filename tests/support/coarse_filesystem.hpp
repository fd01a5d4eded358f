// A real filesystem whose time stamps are whole seconds: ext4 with inodes of 128 bytes, on a loop device.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/support/temporary_directory.hpp"

namespace copper::test {

// With CI=true, a test that cannot run here fails instead of being skipped.
inline bool must_not_skip() {
    const char* ci = std::getenv("CI");  // NOLINT(concurrency-mt-unsafe)
    return ci != nullptr && std::string(ci) == "true";
}

// Gives this process its own mounts, which end with it. Returns the reason if that is impossible.
inline std::optional<std::string> leave_mount_namespace() {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return "no right to mount";
    }
    return std::nullopt;
}

// Mounts the filesystem at `directory`/coarse, in this process's own mount namespace. Returns the reason if
// that is impossible.
inline std::optional<std::string> mount_coarse_filesystem(const TemporaryDirectory& directory) {
    if (auto reason = leave_mount_namespace()) {
        return reason;
    }
    const std::string image = directory / "image";
    const std::string point = directory / "coarse";
    const auto run = [](const std::string& command) {
        return std::system(
            (command + " >/dev/null 2>&1").c_str());  // NOLINT(concurrency-mt-unsafe,cert-env33-c)
    };
    write_file(image, "");
    if (::truncate(image.c_str(), 96LL << 20U) != 0 || ::mkdir(point.c_str(), 0700) != 0) {
        return "no room for a filesystem";
    }
    if (run("PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F -I 128 -m 0 '" + image + "'") != 0) {
        return "no mkfs.ext4";
    }
    if (run("mount -o loop '" + image + "' '" + point + "'") != 0) {
        return "no loop device";
    }
    return std::nullopt;
}

}  // namespace copper::test
