// A read-only view of a directory that answers as late as a parallel filesystem would.
#pragma once

#include <ctime>
#include <memory>
#include <string>

#include <tl/expected.hpp>

#include "bench/slow_filesystem/model.hpp"
#include "bench/slow_filesystem/shared_state.hpp"

namespace copper::bench {

struct SlowFilesystemOptions {
    std::string source;  // an absolute path without symbolic links, as is the mount point's
    std::string mount_point;
    Model model;
    SharedStatePtr shared;
    // Each request is written here: its time of arrival and of the answer (steady clock, ns), what is asked,
    // whether it is there, offset, bytes and path. Empty: none is.
    std::string trace = {};
    // Everything looks as if it had last changed so much earlier (ctime). Of a tree that was made a moment
    // ago, Copper asks more (cache/backing/filesystem_clock.hpp); those of parallel filesystems are old.
    std::time_t age_seconds = 3600;
    bool hides_acls = false;  // the lists of extended attributes do not name them, as MooseFS's do not
};

// Mounts and serves until it is unmounted or the process gets SIGTERM, SIGINT or SIGHUP.
tl::expected<void, std::string> serve_slow_filesystem(const SlowFilesystemOptions& options);

}  // namespace copper::bench
