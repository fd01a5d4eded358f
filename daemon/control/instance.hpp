// The files of a daemon on its node, by which tools find it, stop it and clean up after it. They lie in a
// directory, named by a hash of the mount point, in the user's private_directory(): the control socket, a
// record and, in python/, the module that `copper env` puts in front of PYTHONPATH. Reading the module there
// costs no request.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "base/processes.hpp"
#include "base/unique_fd.hpp"

namespace copper {

struct InstanceRecord {
    std::string mount;
    pid_t pid = 0;
    // Field 22 of /proc/<pid>/stat: tells a process from a later one with the same id.
    std::uint64_t pid_started = 0;
    // The supervisor and its start time; 0: none.
    pid_t supervisor = 0;
    std::uint64_t supervisor_started = 0;
    // The daemon is a successor and has no MPI.
    bool is_alone = false;
    uid_t user = 0;
    std::string job = {};        // the job's name
    std::string batch_job = {};  // the job's id in the batch system; empty: none
    std::string batch_run = {};  // which run of that job, as batch_job_run()
    std::string launch = {};     // the same on all nodes of one launch, and on no others; empty: unknown
    std::uint32_t rank = 0;
    std::uint32_t nodes = 1;
    std::vector<std::string> trees = {};
    bool has_default_trees = false;  // all shared filesystems; nobody has chosen them
    // Directories that the daemon made for the mount point, innermost first. Removed at the end if empty.
    std::vector<std::string> made_directories = {};
    // How the job was launched, for `copper stop`: an argv prefix that runs one command on every node. Empty:
    // none.
    std::vector<std::string> run_everywhere = {};
    std::string log_dir = {};  // empty: none
    std::string no_view = {};  // why this node has no view (view.hpp); empty: it has one, or nobody has tried
    bool without_mirror = false;  // the job goes on without a mirror on this node: nothing serves the mount
    bool operator==(const InstanceRecord&) const = default;
};
// As text (JSON) for the file in the instance's directory. The reverse returns nothing if the text is no
// record.
std::string to_text(const InstanceRecord& record);
std::optional<InstanceRecord> parse_instance_record(std::string_view text);

// The daemon owns it. The destructor removes the directory with all its files.
class Instance {
  public:
    // `base`: the private directory, which is made if it is missing. Fails if it belongs to another user, or
    // a live daemon serves this mount. `killed`: the previous daemon is dead. If it still holds the directory
    // (one of its threads may wait in the kernel, perhaps for this daemon), it loses that.
    enum class Predecessor { none, killed };
    static tl::expected<Instance, std::string> claim(InstanceRecord record, const std::string& base,
                                                     Predecessor predecessor = Predecessor::none);
    Instance(Instance&& other) noexcept;
    ~Instance();

    // Replaces the record.
    tl::expected<void, std::string> update(const InstanceRecord& record);

    // Leaves the directory to those who read the record. Nothing holds it any more.
    void abandon() { directory_.clear(); }

    const std::string& directory() const { return directory_; }
    std::string socket_path() const { return directory_ + "/control"; }

  private:
    Instance(std::string directory, UniqueFd lock)
        : directory_(std::move(directory)), lock_(std::move(lock)) {}
    std::string directory_;
    // Held while the daemon lives: flock(2) tells a live instance from a dead one without races.
    UniqueFd lock_;
};

// For a command that the user shall type: " --mount DIR"; empty if that is the default.
std::string mount_flag(const std::string& mount);
// The command that ends the mirror at `mount`, or clears it if it is dead, in quotes; with --local on this
// node only.
enum class StopSpan { job, this_node };
std::string stop_command(const std::string& mount, StopSpan span = StopSpan::job);
// The same for the mirror of another batch job, from any job.
std::string stop_command_for(const std::string& batch_job, const std::string& mount);

// The rule for every command that uses, changes or ends a mirror: a mirror serves its own batch job and no
// other. A process that names no job may be in any: ssh passes no variables of the batch system on.
bool are_different_jobs(const std::string& one, const std::string& other);
// True for `job` itself, and for jobs that run within it: Flux's "f1/f2" in "f1".
bool is_within_job(const std::string& inner, const std::string& job);
// Whether a mirror of this process's batch job is left over from an earlier run of it. `run`: the mirror's.
bool is_earlier_run(const std::string& run, const std::string& own_run);

// The error for a launch whose mount is taken by `served`; `batch_job`: the new launch's job.
std::string already_served(const InstanceRecord& served, const std::string& batch_job);

// Checks that /tmp has room for the files of a daemon and its MPI. Errors say what to do.
tl::expected<void, std::string> check_room();

// Of its directory: 16 hexadecimal digits.
std::string name_of_instance(const std::string& mount);
std::string instance_directory(uid_t user, const std::string& mount);
std::string python_module_directory(uid_t user, const std::string& mount);
// For caches that programs write (`copper env`), beside the instance. Programs make it; `copper stop` removes
// it.
inline constexpr const char* scratch_name = "scratch";
std::string scratch_directory(uid_t user, const std::string& mount);
// The record of an instance, alive or dead.
std::optional<InstanceRecord> read_instance(const std::string& directory);
// The directories of one user's instances.
std::vector<std::string> find_instances(uid_t user);
// Whether its daemon runs, or the supervisor, which will replace the daemon.
bool is_running(const InstanceRecord& record);
// The live daemon of this user at this mount.
std::optional<InstanceRecord> find_live_instance(uid_t user, const std::string& mount);
// Removes a dead instance's directory. The private directory stays.
void remove_instance(const std::string& directory);

}  // namespace copper
