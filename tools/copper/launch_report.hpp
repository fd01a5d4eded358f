// The final words of `copper launch`.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/everywhere.hpp"
#include "tools/copper/launch_plan.hpp"
#include "tools/copper/launch_watch.hpp"

namespace copper::cli {

// Why the launch failed. The first line says everything. The details follow, with the output of daemons and
// launcher.
std::string explanation(const LaunchOutcome& outcome, const Plan& plan, const std::vector<Trouble>& troubles);

void print_success(const Plan& plan);

}  // namespace copper::cli
