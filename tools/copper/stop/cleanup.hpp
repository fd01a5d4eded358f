// Removes everything of Copper from this node, whatever its state: live, stopped or dead daemons, mounts
// without a daemon, all their files. Acts only on recorded things (a process by id and start time; a mount by
// exact place, type and owner). So it is safe at any time, even twice, even if there is nothing to clean.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace copper::cli {

struct CleanReport {
    std::vector<std::string> done;  // "ended process 12", "unmounted /x"; empty if there was nothing to do
    std::vector<std::string> problems;  // failures
};

// As the value of --batch-job: whatever the job.
inline constexpr const char* any_job = "any";

// What to clean: everything, unless limited.
struct CleanScope {
    std::optional<std::string> mount = {};  // as in --mount
    // Only what this batch job left. Jobs of one user may share a node: a live instance of another job stays.
    // Dead instances, and those of no batch job ("local-<pid>"), belong to nobody and go.
    std::optional<std::string> batch_job = {};
    // Other batch jobs that are known to be over: what they left goes, too.
    std::set<std::string> jobs_over = {};
    // Only what this launch started (InstanceRecord::launch). Empty: any.
    std::string launch = {};
};

// A live mirror on this node that the scope spares, since another batch job holds it.
struct Spared {
    std::string mount;
    std::string batch_job;
};
// Of one user or, as root, of all.
std::vector<Spared> spared_mirrors(const std::optional<uid_t>& user, const CleanScope& scope);

// For this user. REQUIRES: geteuid() == getuid().
CleanReport clean_own(const CleanScope& scope);
// The command that does the same on another node.
std::vector<std::string> clean_command(const CleanScope& scope);

// As root, for one user or for all. Works with the rights of each user on that user's files and directories,
// so no record of a user can make root touch anything that is not the user's.
CleanReport clean_users(const std::optional<uid_t>& user, const CleanScope& scope);

}  // namespace copper::cli
