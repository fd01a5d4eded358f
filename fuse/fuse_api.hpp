// libfuse's low-level interface, in the version that Copper is written for.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

namespace copper {

// "For ever" as the kernel counts (30 years): a snapshot does not change.
inline constexpr double kernel_keeps_seconds = 1e9;

}  // namespace copper
