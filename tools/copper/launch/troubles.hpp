// Why a launch says nothing: nodes whose daemon cannot be started, or has ended. The others wait for it in
// MPI_Init, and so does the launcher. A node that is only late is none of them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/copper/common/failure.hpp"
#include "tools/copper/launch/plan.hpp"
#include "tools/copper/nodes/everywhere.hpp"

namespace copper::cli {

class NodeLooks {
  public:
    explicit NodeLooks(const Plan& plan) : plan_(plan) {}
    // Asks all nodes at once. Returns those on which the daemon's program does not start; if there are none,
    // those that have had no daemon at the last look either, while others had one: at a first look, it may
    // not have been started yet.
    std::vector<Trouble> look();

  private:
    const Plan& plan_;
    std::set<std::string> without_daemon_;  // at the last look
};

// What a node answers: how many daemons of this launch run here or, if none does, why none can.
Result<void> print_daemons(const std::string& launch);

}  // namespace copper::cli
