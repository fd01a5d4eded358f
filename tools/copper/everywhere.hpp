// Runs commands on the job's nodes, through the launcher.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/copper/launcher.hpp"

namespace copper::cli {

// For one command on all other nodes at once, and on one of them. 300 silent nodes, 128 asked at a time, take
// a minute.
inline constexpr std::chrono::milliseconds hosts_patience{60000};
inline constexpr std::chrono::milliseconds host_patience{20000};

// The file of the running `copper`, which has the same path on all nodes.
std::string own_program();

// Runs `command` on all of these nodes at once. Returns all that they print.
std::string said_by_all(const Launcher& launcher, const std::vector<std::string>& hosts,
                        const std::vector<std::string>& command);
// Runs `command` on each of these nodes alone, several nodes at a time. Returns all that they print.
std::string said_by_each(const Launcher& launcher, const std::vector<std::string>& hosts,
                         const std::vector<std::string>& command);

struct Trouble {
    std::string host;
    std::string reason = {};
    bool answers = false;  // programs can be started there
};
// Runs `command` once on each of these nodes: on all at once and, if that fails, node by node, several at a
// time. Returns the nodes where it failed.
std::vector<Trouble> run_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                  const std::vector<std::string>& command);
// The nodes on which `command` fails, or does not print `says`: launchers that survive the loss of a process
// may call a missing program a success. For finding out why a launch fails or says nothing. Asks through the
// remote shell of the launcher where it has one, and then those where that fails through the launcher itself.
std::vector<Trouble> troubles_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& command, const std::string& says = {});

}  // namespace copper::cli
