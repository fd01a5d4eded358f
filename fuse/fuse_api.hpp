// libfuse's low-level interface, in the version that Copper needs.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

namespace copper {

// "For ever" (30 years): a snapshot does not change.
inline constexpr double kernel_keeps_seconds = 1e9;

}  // namespace copper
