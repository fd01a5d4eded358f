// What a daemon leaves on its node so that it can be found, stopped and cleaned up after: a directory, named
// by a hash of the mount point, in the user's private_directory(). It holds the control socket and a record;
// and, in python/ there, the module that `copper env` puts in front of PYTHONPATH, where reading it costs
// nobody anything.
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
    std::uint64_t pid_started =
        0;  // field 22 of /proc/<pid>/stat: tells a process from a later one of the same id
    // The process that outlives it, and when that started; 0: none.
    pid_t supervisor = 0;
    std::uint64_t supervisor_started = 0;
    // Its daemon is no part of the job's MPI any more.
    bool is_alone = false;
    uid_t user = 0;
    std::string job = {};        // its name
    std::string batch_job = {};  // its id in the batch system; empty: none
    std::uint32_t rank = 0;
    std::uint32_t nodes = 1;
    std::vector<std::string> trees = {};
    // Directories that the daemon made for the mount point, innermost first: removed at the end if empty.
    std::vector<std::string> made_directories = {};
    // How the job was launched, for `copper stop`: argv prefix that runs one command on every node. Empty:
    // none.
    std::vector<std::string> run_everywhere = {};
    bool operator==(const InstanceRecord&) const = default;
};
// As it stands in the instance's directory (JSON); nothing for a text that is no record.
std::string to_text(const InstanceRecord& record);
std::optional<InstanceRecord> parse_instance_record(std::string_view text);

// Owned by the daemon: made at the start, removed by the destructor with everything in it.
class Instance {
  public:
    // Fails if the directory is another user's, or a live daemon serves this mount. Where the one that did
    // has just been killed, and may hold it for a moment, that is waited for.
    enum class Predecessor { none, killed };
    static tl::expected<Instance, std::string> claim(InstanceRecord record,
                                                     Predecessor predecessor = Predecessor::none);
    Instance(Instance&& other) noexcept;
    Instance& operator=(Instance&& other) noexcept;
    ~Instance();

    const std::string& directory() const { return directory_; }
    std::string socket_path() const { return directory_ + "/control"; }

  private:
    Instance(std::string directory, UniqueFd lock)
        : directory_(std::move(directory)), lock_(std::move(lock)) {}
    std::string directory_;
    UniqueFd lock_;  // held as long as the daemon lives: flock(2) tells a live instance from a dead one
                     // without races
};

// Whether there is room in /tmp for what a daemon and its MPI leave there. The error says what to do.
tl::expected<void, std::string> check_room();

std::string instance_directory(uid_t user, const std::string& mount);
std::string python_module_directory(uid_t user, const std::string& mount);
// The record of a mount's instance, whether its daemon lives or not.
std::optional<InstanceRecord> read_instance(const std::string& directory);
// Of one user.
std::vector<std::string> find_instances(uid_t user);
// Its daemon, or the process that will replace it.
bool is_running(const InstanceRecord& record);
// The live daemon of this mount, of this user.
std::optional<InstanceRecord> find_live_instance(uid_t user, const std::string& mount);
// Removes a dead instance's directory (and the private directory if it is empty then).
void remove_instance(const std::string& directory);

}  // namespace copper
