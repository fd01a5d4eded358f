// What `copper launch` will start, and where. Everything known before the first process starts.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/options.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/launcher.hpp"

namespace copper::cli {

// The places of a job, which are the same on all its nodes.
struct Places {
    std::string private_directory = {};  // empty: the usual one
    bool mount_is_taken = false;         // the default mount: use mount_within(private_directory)
    bool operator==(const Places&) const = default;
};

struct LaunchOptions {
    FlagTexts flags;
    std::string config;
    std::string nodes_from, launcher, local;
    std::vector<std::string> keep_env;  // variables
    bool dry_run = false;
};

struct Plan {
    DaemonOptions daemon;
    Launcher launcher;
    Placement placement;
    std::vector<Trouble> left_out;    // nodes on which no daemon could be started at an earlier try
    std::vector<std::string> mounts;  // on this machine
    std::string copperd;              // the program
    std::vector<std::string> command;
    std::string log;
    // Nobody gave a mount. Then it may move, if another user has the default one on some node.
    bool uses_default_mount = false;

    std::size_t nodes() const {
        return placement.on_this_machine != 0 ? placement.on_this_machine : placement.hosts.size();
    }
    bool on_this_machine_only() const {
        return placement.on_this_machine != 0 || launcher.family == Family::alone;
    }
};

// The program of the daemon that belongs to this `copper`.
Result<std::string> find_daemon();

// REQUIRES: as many nodes may lack a mirror as are `left_out`.
Result<Plan> make_plan(const LaunchOptions& options, const Places& places = {},
                       const std::vector<Trouble>& left_out = {});

// Why another user could put something in the place of the default mount on this node; empty if nobody can.
std::string why_default_mount_is_taken();

}  // namespace copper::cli
