// Runs commands on the job's nodes, through the launcher.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/copper/launcher.hpp"

namespace copper::cli {

// For one command on other nodes.
inline constexpr std::chrono::milliseconds host_patience{60000};

// The file of the running `copper`, which has the same path on all nodes.
std::string own_program();

// Runs `command` once on each of these nodes: on all at once and, if that fails, node by node, several at a
// time. Returns the nodes where it failed.
std::vector<std::string> run_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                      const std::vector<std::string>& command);

// The nodes that do not answer to the launcher's remote shell. For finding out why a launch failed.
std::vector<std::string> unreachable_hosts(const Launcher& launcher, const std::vector<std::string>& hosts);

}  // namespace copper::cli
