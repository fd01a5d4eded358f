// Chooses the cores of the daemon.
#pragma once

#include <map>
#include <string>

#include <tl/expected.hpp>

struct hwloc_topology;

namespace copper {

// Variables of the job scheduler. Taken from the environment, except in tests.
using SchedulerVariables = std::map<std::string, std::string>;
SchedulerVariables scheduler_variables();

// The cores for --cores `wanted` (auto, none or a list), of those of this machine that the process may use.
// An empty result means: leave the daemon where the launcher put it. All lists are in the format of
// cpuset(7); with several hardware threads a core, they name threads, as the kernel does.
//
// "auto" takes up to 8 that the job leaves free. The scheduler tells how many the job has, not which. Jobs
// fill the lowest ones first, but some use one thread of each core first, others all threads of a core. So
// the daemon takes threads that are free either way: of idle cores, or else of used ones; those near the
// network before others, and then the highest.
tl::expected<std::string, std::string> choose_cores(const std::string& wanted, hwloc_topology* machine,
                                                    const std::string& near_network,
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
