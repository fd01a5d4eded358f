// Commands on the job's nodes, through its launcher.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/copper/launcher.hpp"

namespace copper::cli {

// For one command on other nodes.
inline constexpr std::chrono::milliseconds host_patience{60000};

// The file of the running `copper`, which lies at the same place on all nodes.
std::string own_program();

// Runs `command` once on each of these nodes: all at once and, if that fails, node by node, several at a
// time. Returns those where it failed.
std::vector<std::string> run_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                      const std::vector<std::string>& command);

// Which of them do not answer to the program that a launcher reaches them with. For finding out why it
// failed.
std::vector<std::string> unreachable_hosts(const Launcher& launcher, const std::vector<std::string>& hosts);

}  // namespace copper::cli
