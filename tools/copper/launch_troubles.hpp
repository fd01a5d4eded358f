// Why a launch says nothing: nodes whose daemon cannot be started, or has ended. The others wait for it in
// MPI_Init, and so does the launcher.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/everywhere.hpp"
#include "tools/copper/failure.hpp"
#include "tools/copper/launch_plan.hpp"

namespace copper::cli {

// The nodes on which the daemon's program does not even start.
std::vector<Trouble> nodes_without_program(const Plan& plan);
// The nodes whose daemon has ended. If none runs anywhere, the launcher has not started them yet.
std::vector<Trouble> nodes_without_daemon(const Plan& plan);

// What a node answers: prints how many daemons of this launch run here.
Result<void> print_daemons(const std::string& launch);

}  // namespace copper::cli
