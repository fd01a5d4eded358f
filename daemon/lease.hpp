// A mirror must not outlive its batch job where the batch system cannot end it: daemons that were started
// over ssh, and supervisors, which leave the launcher's session, are not among the processes that it knows.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/clock.hpp"
#include "base/processes.hpp"
#include "daemon/control/options.hpp"

namespace copper {

// Runs a command, now and then, that ends this mirror if its job is over (`--lease`). The first node does so
// for all nodes. A node on its own (without its launcher, or with a successor) does so for itself: then its
// launcher may have been lost with the job. All nodes together ask the batch system 10 times a second at
// most. Not thread-safe.
class Lease {
  public:
    // `launcher`: the process that started the daemon.
    Lease(const DaemonOptions& options, ProcessName launcher) : options_(options), launcher_(launcher) {}

    // Call this about once a second. Never waits.
    void look(TimePoint now, std::uint32_t rank, std::uint32_t nodes, bool is_alone);

  private:
    void ask(bool for_all_nodes);

    const DaemonOptions& options_;
    const ProcessName launcher_;
    pid_t running_ = 0;  // the command
    std::optional<TimePoint> next_;
};

}  // namespace copper
