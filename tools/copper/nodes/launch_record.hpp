// The files that `copper launch` leaves on its node for `copper stop`: the record launch-<hash of
// mount>.json, the launcher's output (.log) and the list of nodes (.hosts). They lie beside the instances of
// the daemons (daemon/control/instance.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {

struct LaunchRecord {
    std::string mount;
    std::string job;
    std::string batch_job;
    std::string batch_run = {};
    std::string launch;   // as in InstanceRecord
    ProcessName process;  // the launcher, which leads a process group; without a launcher, the daemon itself
    Launcher launcher;
    std::vector<std::string> hosts;      // empty if all nodes are on this machine
    std::vector<Trouble> left_out = {};  // further nodes, which have no daemon (--allow-missing)
    std::uint32_t on_this_machine = 0;   // as in Placement
    std::string log_dir = {};            // of the daemons; empty: they write into the launcher's output
    bool operator==(const LaunchRecord&) const = default;
};
// The launcher for this process, which may be outside the batch job of the launch.
Launcher launcher_from_here(const LaunchRecord& record);
// As text (JSON) for the file. The reverse returns nothing if the text is no record.
std::string to_text(const LaunchRecord& record);
std::optional<LaunchRecord> parse_launch_record(std::string_view text);

struct LaunchFiles {
    std::string record, log, hosts, lock;
};
// All these functions are for this process's user, on this node.
LaunchFiles launch_files(const std::string& mount);
std::vector<LaunchRecord> find_launches();
std::optional<LaunchRecord> read_launch(const std::string& mount);
// The hosts of `mount`'s job by rank, if it was launched from this node to others.
std::vector<std::string> launched_hosts(const std::string& mount);
Result<void> write_launch(const LaunchRecord& record);
// Removes all three files. The directory stays.
void remove_launch(const std::string& mount);
// Removes the files of launches that were killed before they wrote a record. Returns whether there were any.
bool remove_dead_launches();

// Copies the launcher's output to launch.log in `log_dir`, unless that is empty. The launcher itself writes
// to this node's own disk: a shared one may be full or slow, and `copper launch` reads there which nodes are
// ready.
void keep_launch_log(const std::string& mount, const std::string& log_dir);

// One launch of a mount at a time on this node: held from its first look at what is there until its daemons
// serve. REQUIRES: the user's private_directory() exists.
class LaunchLock {
  public:
    // Fails if another process holds it.
    static Result<LaunchLock> take(const std::string& mount);
    LaunchLock(LaunchLock&& other) noexcept = default;
    LaunchLock& operator=(LaunchLock&&) = delete;
    ~LaunchLock();

  private:
    LaunchLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    std::string path_;
    UniqueFd fd_;
};

// A new file, mode 0600, for appending: the launcher of a launch that was killed may still write into an
// older one. Fails on a link or another user's file in its place.
Result<UniqueFd> open_log(const std::string& path);
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace copper::cli
