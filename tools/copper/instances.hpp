// The instances of this user on this node: which of them a mount names, and what to do elsewhere.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/instance.hpp"
#include "tools/copper/failure.hpp"

namespace copper::cli {

// --mount as given; otherwise from the environment or the configuration file; otherwise /tmp/$USER/copper, or
// where `copper launch` has put this job's mirror instead. Canonical.
Result<std::string> mount_named(const std::string& flag);

// The mount of node `node` of a job on this machine (--local N).
std::string local_mount(const std::string& mount, std::uint32_t node);

// N if `path` is `mount`.N; nothing for another path.
std::optional<std::uint32_t> local_node(std::string_view path, std::string_view mount);

// An instance of this user on this node.
struct Found {
    std::string directory;
    InstanceRecord record;
};
// The instances that `mount` names: DIR itself, or DIR.0, DIR.1, ... in this order.
std::vector<Found> instances_named(const std::string& mount, uid_t user);

// For each command that uses a mirror: fails if that serves another batch job than this process's. Commands
// that only look warn instead.
Result<void> check_job(const InstanceRecord& record);
void warn_of_other_job(const std::string& mount);

// A command of the user that works only where a daemon is.
struct Needy {
    std::string name;            // "run"
    std::string arguments = {};  // "-- ..."
    bool on_every_node = false;  // or on one, which asks the others
};
// The failure where there is no daemon of `mount`. If the job was launched from this node, it says where the
// daemons are and how to run `command` there.
tl::unexpected<Failure> no_daemon_here(const std::string& mount, const Needy& command);

}  // namespace copper::cli
