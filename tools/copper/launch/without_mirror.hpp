// Nodes on which a job goes on without a mirror (--allow-missing). Each has a record in the place of an
// instance (daemon/control/instance.hpp), for `copper run`. `copper stop` removes it like one that a lost
// daemon left.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/instance.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/launch/plan.hpp"
#include "tools/copper/nodes/everywhere.hpp"

namespace copper::cli {

// Leaves the record on these nodes, as far as programs can be started there. Says where that fails.
void note_without_mirror(const Plan& plan, const std::vector<Trouble>& nodes);

// On another node, `copper launch` calls `copper __without-mirror RECORD`: ends what the launch has left
// there, and leaves the record. Returns the exit code.
inline constexpr std::string_view without_mirror_command = "__without-mirror";
int run_without_mirror(const std::string& record);

}  // namespace copper::cli
