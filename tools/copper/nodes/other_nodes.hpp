// The nodes of a job that its daemons do not reach: those that have lost theirs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/control/control.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"

namespace copper::cli {

// Runs `command`, which prints done_prefix, on the nodes that are not in `reply`, but not on this one.
// Returns those where it failed. On the node of the launch, that asks the silent ones alone. On another node,
// it asks all, through what the record of its daemon (`found`) says: which are silent, the launch record
// tells.
std::vector<Trouble> run_on_silent_nodes(const std::vector<std::string>& command,
                                         const std::optional<LaunchRecord>& launch,
                                         const std::vector<Found>& found,
                                         const std::optional<ControlReply>& reply);

}  // namespace copper::cli
