// Which cores the daemon runs on.
#pragma once

#include <map>
#include <string>

#include <tl/expected.hpp>

namespace copper {

// What the job scheduler says, by variable; of the environment, unless a test says otherwise.
using SchedulerVariables = std::map<std::string, std::string>;
SchedulerVariables scheduler_variables();

// The cores that --cores `wanted` (auto, none or a list) means, as a list, where `allowed` are those of this
// machine that the process may use; empty: leave the daemon where the launcher put it. The lists are in the
// format of cpuset(7).
//
// "auto" takes the cores that the job leaves free: schedulers with core specialisation give a job fewer cores
// than the machine allows, and tell it how many. Applications are put on the lowest cores first, so the
// daemon takes the highest.
tl::expected<std::string, std::string> choose_cores(const std::string& wanted, const std::string& allowed,
                                                    const SchedulerVariables& scheduler);

// Whether others run on the daemon's cores too.
enum class Cores { shared, dedicated };

struct Placement {
    Cores cores = Cores::shared;
    std::string description;  // for the log
};

// Binds the whole process, before it has other threads, which inherit it.
tl::expected<Placement, std::string> pin_process(const std::string& wanted);

}  // namespace copper
