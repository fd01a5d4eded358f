// A mount point, before and after it is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuse/session.hpp"

namespace copper {

// What stands in the way of mounting there, in words, with what to do about it; nothing if all is well.
// REQUIRES: no Copper mount is there, alive or dead: looking at it could wait for its daemon.
std::optional<std::string> obstacle_to_mount(const std::string& mount_point, Audience audience);

// Lets the kernel read up to `bytes` of a file ahead, where it lets this process decide (root). To be called
// when the kernel has got the answer to INIT, which can only lower what it has set itself (128 KiB).
void raise_read_ahead(const std::string& mount_point, std::uint64_t bytes);

// Unmounts; if it is in use, as soon as it no longer is.
void unmount(const std::string& mount_point);

// Unmounts if it is not in use and, where this process may ask the kernel (root), was not since the last
// call: MNT_EXPIRE of umount2(2).
void unmount_if_unused(const std::string& mount_point);

}  // namespace copper
