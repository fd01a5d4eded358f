// Connects libfuse's table of callbacks with Operations.
#pragma once

#include <atomic>

#include "fuse/fuse_api.hpp"
#include "fuse/kernel_reply.hpp"
#include "fuse/operations.hpp"
#include "fuse/session.hpp"

namespace copper {

// The user data of the callbacks.
struct Served {
    Operations& operations;
    PendingReplies& pending;
    const PassthroughPolicy passthrough;
    const Audience audience;
    const pid_t page_filler;  // SessionOptions
    // The kernel's features (FUSE_CAP_...). Written once, by the first request.
    std::atomic<unsigned> capable = 0;
};

fuse_lowlevel_ops dispatch_table();

}  // namespace copper
