// The instances of this user on this node: which of them a mount names, and what to do elsewhere.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/instance.hpp"
#include "tools/copper/common/failure.hpp"

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

// Whose mirror this is. `unknown`: it, or this process, belongs to no batch job. A larger one fits better.
enum class Whose { other_jobs, earlier_runs, unknown, own };
Whose whose(const InstanceRecord& record);
// Of this user's instances that `mount` names, those that fit this process's job best. One job may have DIR
// on a node, and another one DIR.0.
std::vector<Found> instances_of_job(const std::string& mount);

// For each command that uses a mirror: fails if that serves another batch job than this process's, or an
// earlier run of it. Commands that only look warn instead.
Result<void> check_job(const InstanceRecord& record);
void warn_of_other_job(const std::string& mount);
// For a command that sends programs through it: tells if nobody can know whose it is. Of the processes of one
// step, the first one tells it.
void tell_if_unknown(const InstanceRecord& record);

// Of the processes that a launcher started on this node in one step, the first.
bool is_first_of_node();

// A command of the user that works only where a daemon is.
struct Needy {
    std::string name;            // "run"
    std::string arguments = {};  // "-- ..."
    bool on_every_node = false;  // or on one, which asks the others
};
// The failure on a node on which the job goes on without a mirror.
tl::unexpected<Failure> no_mirror_here(const std::string& mount, const Needy& command);
// The failure where there is no daemon of `mount`. If the job was launched from this node, it says where the
// daemons are and how to run `command` there.
tl::unexpected<Failure> no_daemon_here(const std::string& mount, const Needy& command);

}  // namespace copper::cli
