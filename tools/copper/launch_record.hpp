// What `copper launch` leaves on the node it ran on, for `copper stop`: launch-<hash of mount>.json, beside
// the instances of the daemons (daemon/control/instance.hpp), with the launcher's output (.log) and node list
// (.hosts).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "tools/copper/launcher.hpp"
#include "tools/copper/process.hpp"

namespace copper::cli {

struct LaunchRecord {
    std::string mount;
    std::string job;
    std::string batch_job;
    ProcessName
        process;  // the launcher, which leads a process group; the daemon itself where there is no launcher
    Launcher launcher;
    std::vector<std::string> hosts;     // empty if all nodes are on this machine
    std::uint32_t on_this_machine = 0;  // as in Placement
    bool operator==(const LaunchRecord&) const = default;
};
// As it stands in the file (JSON); nothing for a text that is no record.
std::string to_text(const LaunchRecord& record);
std::optional<LaunchRecord> parse_launch_record(std::string_view text);

struct LaunchFiles {
    std::string record, log, hosts;
};
// All of these are of this process's user, on this node.
LaunchFiles launch_files(const std::string& mount);
std::vector<LaunchRecord> find_launches();
std::optional<LaunchRecord> read_launch(const std::string& mount);
Result<void> write_launch(const LaunchRecord& record);
// All three files; the directory stays.
void remove_launch(const std::string& mount);

// In the user's private_directory(), for caches that programs write (environment.hpp). Programs make it;
// `copper stop` removes it.
inline constexpr const char* scratch_name = "scratch";
std::string scratch_directory();

// A new or emptied file, mode 0600, for appending. A link or another user's file in its place is an error.
Result<UniqueFd> open_log(const std::string& path);
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace copper::cli
