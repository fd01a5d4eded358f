#include "tools/copper/nodes/copper_mounts.hpp"

#include <algorithm>

namespace copper::cli {

std::vector<CopperMount> copper_mounts_among(const std::vector<Mount>& mounts) {
    std::vector<CopperMount> found;
    for (const auto& mount : mounts) {
        if (const auto user = user_of(mount); user && mount.type == copper_filesystem_type) {
            found.push_back({std::to_string(mount.id), mount.device.substr(mount.device.find(':') + 1),
                             mount.point, *user});
        }
    }
    std::reverse(found.begin(), found.end());
    return found;
}

std::vector<CopperMount> copper_mounts() {
    return copper_mounts_among(read_mounts());
}

}  // namespace copper::cli
