// Connects libfuse's table of callbacks with Operations.
#pragma once

#include <atomic>

#include "fuse/fuse_api.hpp"
#include "fuse/kernel_reply.hpp"
#include "fuse/operations.hpp"
#include "fuse/session.hpp"

namespace copper {

// What the callbacks get as their user data.
struct Served {
    Operations& operations;
    PendingReplies& pending;
    const PassthroughPolicy passthrough;
    const Audience audience;
    // What the kernel offers (FUSE_CAP_...). Written once, by the request that the kernel waits for before
    // all others.
    std::atomic<unsigned> capable = 0;
};

fuse_lowlevel_ops dispatch_table();

}  // namespace copper
