// What `copper launch` says in the end.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/launch_plan.hpp"
#include "tools/copper/launch_watch.hpp"

namespace copper::cli {

// Why it failed. The first line says it all; the others, and what was written by daemons and launcher,
// follow.
std::string explanation(const LaunchOutcome& outcome, const Plan& plan,
                        const std::vector<std::string>& unreachable);

void print_success(const Plan& plan);

}  // namespace copper::cli
