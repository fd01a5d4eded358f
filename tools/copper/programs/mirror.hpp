// What `copper path`, `env` and `run` know about the running mirror.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/copper/common/failure.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/programs/environment.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace copper::cli {

struct MirrorOptions {
    std::string mount;
    std::uint32_t node = 0;             // selects the mount if several nodes share this machine
    std::vector<std::string> prefixes;  // instead of the trees
    bool pycache_prefix = false;
    bool no_python_modules = false;
};

// --mount, which names the job.
CLI::Option* add_mount_option(CLI::App& command, std::string& mount);
// --mount and --node; and the options of `env` and `run`.
void add_mirror_options(CLI::App& command, MirrorOptions& options);
void add_environment_options(CLI::App& command, MirrorOptions& options);

inline const Needy run_command{.name = "run", .arguments = "-- ...", .on_every_node = true};
// The running daemon on this node that the options name, for use: fails if it serves another batch job.
// Elsewhere, the failure names `command`.
Result<InstanceRecord> running_instance(const MirrorOptions& options, const Needy& command = run_command);

// Whether the job goes on without a mirror on this node. `mount`, `node`: as in MirrorOptions.
bool is_without_mirror(const std::string& mount, std::uint32_t node = 0);

// What sends a program through the mirror, and the mirror itself. They come from the daemon's
// record on this node and no other node is asked, because every rank of a job may ask for them.
struct MirrorEnvironment {
    Mirror mirror;
    Changes changes;
    bool leads_into_mirror = false;  // any of PATH, ... does
};
enum class Paths { change, keep };  // keep: for a program in the node's view
Result<MirrorEnvironment> mirror_environment(const MirrorOptions& options, const Needy& command = run_command,
                                             Paths paths = Paths::change);

// Of this process.
std::optional<std::string> read_variable(const std::string& name);

// realpath(3).
std::optional<std::string> resolve_path(const std::string& path);
// The same, but what lies in a tree stays as it is told: the mirror shows it, and this node's own filesystem
// may not answer.
std::optional<std::string> resolve_up_to(const Mirror& mirror, const std::string& path);

}  // namespace copper::cli
