// Chooses the launcher that starts the daemons.
#pragma once

#include <string>

#include "tools/copper/common/failure.hpp"
#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {

struct LauncherChoice {
    std::string name;          // as in --launcher
    std::string arguments;     // COPPER_LAUNCHER_ARGS
    std::string copperd;       // the path of the program to start
    bool one_machine = false;  // --local: srun cannot start processes on this machine alone
    bool this_node_alone = false;
};
// Of a program, without symbolic links. Empty if there is none.
std::string place_of(const std::string& program);
// Of this process's job.
BatchSystem batch_system();
Result<Launcher> find_launcher(const LauncherChoice& choice);

}  // namespace copper::cli
