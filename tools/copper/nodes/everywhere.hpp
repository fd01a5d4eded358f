// Runs commands on the job's nodes, through the launcher.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/common/process.hpp"
#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {

// For one command on all other nodes at once, and on one of them.
inline constexpr std::chrono::milliseconds hosts_patience{60000};
inline constexpr std::chrono::milliseconds host_patience{20000};
// For all that are asked alone, 128 at a time: what is not asked by then is not asked.
inline constexpr std::chrono::milliseconds each_patience{60000};

// The file of the running `copper`, which has the same path on all nodes.
std::string own_program();

// Runs `command` on all of these nodes at once: one call of the launcher, however many they are. Returns what
// came in time: with some launchers, the call does not end if one node cannot be reached.
Result<Output> ask_all(const Launcher& launcher, const std::vector<std::string>& hosts,
                       const std::vector<std::string>& command,
                       std::chrono::milliseconds patience = hosts_patience);
// All that they print.
std::string said_by_all(const Launcher& launcher, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& command,
                        std::chrono::milliseconds patience = hosts_patience);
// Of each line with `prefix` in such an output, what is behind it.
std::vector<std::string> lines_behind(std::string_view prefix, const std::string& text);
// Runs `command` on each of these nodes alone, several nodes at a time. Returns all that they print.
std::string said_by_each(const Launcher& launcher, const std::vector<std::string>& hosts,
                         const std::vector<std::string>& command);

struct Trouble {
    std::string host;
    std::string reason = {};
    bool answers = false;  // programs can be started there
    bool operator==(const Trouble&) const = default;
};
std::vector<std::string> hosts_of(const std::vector<Trouble>& troubles);
// What a command prints on a node where it has done its work, before the node's name.
inline constexpr std::string_view done_prefix = "copper-done ";
// Runs `command`, which may run twice, on these nodes: on all at once. If that fails, then node by node,
// several at a time, where it has not said that it is done. Returns the nodes where it failed, or did not end
// in time.
std::vector<Trouble> run_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                  const std::vector<std::string>& command);
// The nodes on which `command` fails, or does not print `says`: launchers that survive the loss of a process
// may call a missing program a success. A node that is late is not among them. For finding out why a launch
// fails or says nothing. Asks through the remote shell of the launcher where it has one, and then those where
// that fails through the launcher itself.
std::vector<Trouble> troubles_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& command, const std::string& says = {});

}  // namespace copper::cli
