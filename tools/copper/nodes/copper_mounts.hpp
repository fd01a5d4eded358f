// The mirrors that are mounted on this node.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/mount_table.hpp"

namespace copper::cli {

struct CopperMount {
    std::string id;     // in /proc/self/mountinfo
    std::string minor;  // of its device, which names it in /sys/fs/fuse/connections
    std::string point;
    uid_t user = 0;  // the daemon's user
};
// Mounts of type fuse.copper, the latest first.
std::vector<CopperMount> copper_mounts();
std::vector<CopperMount> copper_mounts_among(const std::vector<Mount>& mounts);

}  // namespace copper::cli
