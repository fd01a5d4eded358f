// Chooses the cores of the daemon.
#pragma once

#include <map>
#include <string>

#include <tl/expected.hpp>

namespace copper {

// Variables of the job scheduler. Taken from the environment, except in tests.
using SchedulerVariables = std::map<std::string, std::string>;
SchedulerVariables scheduler_variables();

// The cores for --cores `wanted` (auto, none or a list). `allowed`: the cores of this machine that the
// process may use. An empty result means: leave the daemon where the launcher put it. All lists are in the
// format of cpuset(7).
//
// "auto" takes the cores that the job leaves free. A scheduler with core specialisation gives a job fewer
// cores than the machine allows, and tells the job how many. Applications get the lowest cores first, so the
// daemon takes the highest.
tl::expected<std::string, std::string> choose_cores(const std::string& wanted, const std::string& allowed,
                                                    const SchedulerVariables& scheduler);

// Whether others also run on the daemon's cores.
enum class Cores { shared, dedicated };

struct Placement {
    Cores cores = Cores::shared;
    std::string description;  // for the log
};

// Binds the whole process. Call it before other threads start, so that they inherit the cores.
tl::expected<Placement, std::string> pin_process(const std::string& wanted);

}  // namespace copper
