// The final words of `copper launch`.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/launch/plan.hpp"
#include "tools/copper/launch/watch.hpp"
#include "tools/copper/nodes/everywhere.hpp"

namespace copper::cli {

// Why the launch failed. The first line says everything. The details follow, with the output of daemons and
// launcher.
std::string explanation(const LaunchOutcome& outcome, const Plan& plan, const std::vector<Trouble>& troubles);

// Nodes that the job goes on without. The reason is that of the daemon, or of an earlier try.
std::vector<Trouble> missing_nodes(const LaunchOutcome& outcome, const Plan& plan);

// `missing`: how many nodes the job goes on without.
void print_success(const Plan& plan, std::size_t missing);

}  // namespace copper::cli
