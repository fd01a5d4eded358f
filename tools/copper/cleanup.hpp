// Leaves nothing of Copper on this node, in whatever state it is: daemons that live, are stopped or dead,
// mounts whose daemon is gone, files of any of them. Acts only on what was recorded (a process by id and
// start time, a mount by its exact place, type and owner), so it can be run at any time, also twice, also
// while nothing is there.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/mount_table.hpp"
#include "tools/copper/common.hpp"

namespace copper::cli {

struct CopperMount {
    std::string id;     // of /proc/self/mountinfo
    std::string minor;  // of its device: its name in /sys/fs/fuse/connections
    std::string point;
    uid_t user = 0;  // who serves it
};
// Mounts of type fuse.copper, the latest first.
std::vector<CopperMount> copper_mounts();
std::vector<CopperMount> copper_mounts_among(const std::vector<Mount>& mounts);

struct CleanReport {
    std::vector<std::string> done;      // "ended process 12", "unmounted /x": nothing if there was nothing
    std::vector<std::string> problems;  // what could not be cleaned
};

// What is to be cleaned: everything, unless limited.
struct CleanScope {
    std::optional<std::string> mount;  // what this names, as in --mount
    // What this batch job left. Jobs of one user may share a node: an instance whose daemon lives and which
    // names another job is left alone. Those that name no batch job ("local-<pid>") and dead ones are
    // nobody's.
    std::optional<std::string> batch_job;
};

// Of this user. REQUIRES: geteuid() == getuid().
CleanReport clean_own(const CleanScope& scope);

// As root: of this user or of everybody, with their rights where files and directories of theirs are touched.
// Nothing that a user has written down can so make root act on what is not this user's.
CleanReport clean_users(const std::optional<uid_t>& user, const CleanScope& scope);

}  // namespace copper::cli
