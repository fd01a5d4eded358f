// Whether this process may mount a FUSE filesystem on this node.
#pragma once

#include <optional>
#include <string>

namespace copper {

// The set-user-id program of FUSE with which users other than root mount and unmount.
inline constexpr const char* fuse_helper = "fusermount3";

enum class Audience { launching_user, everyone };  // everyone: the mount option allow_other of fuse(8)

struct FuseObstacle {
    std::string text;    // "there is no /dev/fuse"
    std::string advice;  // what to do about it
};
// Looks at the device, and at the set-user-id helper that all but root need. Nothing: mounting is possible.
std::optional<FuseObstacle> obstacle_in_fuse(Audience audience);

}  // namespace copper
