// Checks a mount point, and handles the mount on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuse/session.hpp"

namespace copper {

// Why nothing can be mounted there, and what to do about it; nothing if it is fine. REQUIRES: no Copper mount
// is there, alive or dead, because touching one could block on its daemon.
std::optional<std::string> obstacle_to_mount(const std::string& mount_point, Audience audience);

// Lets the kernel read `bytes` of a file ahead, if this process may set that (root). Call it after the kernel
// has the answer to INIT, which can only lower the kernel's default (128 KiB). With more than an extent, a
// page fault in a library would fetch data that nobody needs.
void raise_read_ahead(const std::string& mount_point, std::uint64_t bytes);

// Unmounts, now or when it is no longer in use.
void unmount(const std::string& mount_point);

// Unmounts if nobody uses it and, if this process may ask the kernel (root), nobody has used it since the
// last call: MNT_EXPIRE of umount2(2).
void unmount_if_unused(const std::string& mount_point);

}  // namespace copper
