// Finds the job's nodes and the launcher: all that `copper launch` must know about its site.
#pragma once

#include <string>
#include <vector>

#include "tools/copper/failure.hpp"
#include "tools/copper/launcher.hpp"

namespace copper::cli {

// `from` as in --nodes-from: pbs, slurm, flux, lsf, sge, auto, a list of hosts or a file.
Result<std::vector<std::string>> find_nodes(const std::string& from);

struct LauncherChoice {
    std::string name;          // as in --launcher
    std::string arguments;     // COPPER_LAUNCHER_ARGS
    std::string copperd;       // the path of the program to start
    bool one_machine = false;  // --local: srun cannot start processes on this machine alone
    bool this_node_alone = false;
};
Result<Launcher> find_launcher(const LauncherChoice& choice);

}  // namespace copper::cli
