// The files that `copper launch` leaves on its node for `copper stop`: the record launch-<hash of
// mount>.json, the launcher's output (.log) and the list of nodes (.hosts). They lie beside the instances of
// the daemons (daemon/control/instance.hpp).
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
    ProcessName process;  // the launcher, which leads a process group; without a launcher, the daemon itself
    Launcher launcher;
    std::vector<std::string> hosts;     // empty if all nodes are on this machine
    std::uint32_t on_this_machine = 0;  // as in Placement
    bool operator==(const LaunchRecord&) const = default;
};
// As text (JSON) for the file. The reverse returns nothing if the text is no record.
std::string to_text(const LaunchRecord& record);
std::optional<LaunchRecord> parse_launch_record(std::string_view text);

struct LaunchFiles {
    std::string record, log, hosts;
};
// All these functions are for this process's user, on this node.
LaunchFiles launch_files(const std::string& mount);
std::vector<LaunchRecord> find_launches();
std::optional<LaunchRecord> read_launch(const std::string& mount);
Result<void> write_launch(const LaunchRecord& record);
// Removes all three files. The directory stays.
void remove_launch(const std::string& mount);

// In the user's private_directory(), for caches that programs write (environment.hpp). Programs make it;
// `copper stop` removes it.
inline constexpr const char* scratch_name = "scratch";
std::string scratch_directory();

// A new or emptied file, mode 0600, for appending. Fails on a link or another user's file in its place.
Result<UniqueFd> open_log(const std::string& path);
Result<void> write_file(const std::string& path, std::string_view text);

}  // namespace copper::cli
