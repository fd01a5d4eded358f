// What `copper launch` will start, and where. Everything known before the first process starts.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/options.hpp"
#include "tools/copper/failure.hpp"
#include "tools/copper/launcher.hpp"

namespace copper::cli {

struct LaunchOptions {
    FlagTexts flags;
    std::string config;
    std::string nodes_from, launcher, local;
    std::vector<std::string> prefetch;  // paths
    std::vector<std::string> keep_env;  // variables
    bool dry_run = false;
};

struct Plan {
    DaemonOptions daemon;
    Launcher launcher;
    Placement placement;
    std::vector<std::string> mounts;  // on this machine
    std::string copperd;              // the program
    std::vector<std::string> command;
    std::string log;
    std::vector<std::string> keep_env;

    std::size_t nodes() const {
        return placement.on_this_machine != 0 ? placement.on_this_machine : placement.hosts.size();
    }
    bool on_this_machine_only() const {
        return placement.on_this_machine != 0 || launcher.family == Family::alone;
    }
};

Result<Plan> make_plan(const LaunchOptions& options);

}  // namespace copper::cli
