// What stands between mpirun of Open MPI 4 and its remote shell, so that the end of a session late in the job
// does no harm: mpirun takes it for a node that could not be started, and ends the daemons of all nodes
// (rsh_wait_daemon() in orte/mca/plm/rsh/plm_rsh_module.c of Open MPI 4.1).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {

// mpirun calls `copper __remote-shell SHELL HOST COMMAND...`.
inline constexpr std::string_view remote_shell_command = "__remote-shell";

// Runs `words`, and returns the exit code: 0 if a session ended that had lasted longer than a start takes.
int run_remote_shell(const std::vector<std::string>& words);

// `launcher.extra`, with that around the shell that mpirun would use: the one that `extra` names, or else
// `usual`, the plm_rsh_agent of Open MPI: commands separated by colons, of which it takes the first that
// exists.
std::vector<std::string> with_remote_shell(const Launcher& launcher, const std::string& usual);
// The same, where it is needed. Asks ompi_info(1).
std::vector<std::string> with_remote_shell(const Launcher& launcher);

}  // namespace copper::cli
