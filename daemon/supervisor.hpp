// Keeps a node's mount when its daemon is lost: killed, or taken down by MPI or the launcher.
//
// The supervisor is a separate process outside the launcher's session and process group. It holds the
// resources that must outlive the daemon (HandOver, View) and waits. If the daemon ends without notice, or is
// silent for so long that it must hang (silence.hpp), the supervisor forks a successor, which goes on with
// the same mount. A successor serves alone, from the backing filesystem, because an MPI job cannot take in
// new processes. Programs see a pause.
//
// slurmstepd kills all processes of a job step on a node when the step's task there ends. So the process that
// it started becomes neither of the two: it waits until both have ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/processes.hpp"
#include "daemon/control/options.hpp"
#include "daemon/supervisor_link.hpp"
#include "daemon/vitals.hpp"
#include "fuse/lasting_memory.hpp"

namespace copper {

// Why a daemon has a successor.
enum class Loss : std::uint8_t {
    crashed,         // or was killed, or ended early
    launcher_ended,  // it ends its processes; the mirror stays while programs use it
};

// The state a successor starts from.
struct Succession {
    HandOver hand_over;
    Place place;
    Loss loss = Loss::crashed;
    pid_t lost = 0;   // the lost daemon
    std::string why;  // why it was lost, for people
};

struct Supervised {
    SupervisorLink link;
    ProcessName launcher = {};             // the process that started the first daemon
    bool launched_by_slurm = false;        // with srun, not with mpirun in a job of Slurm
    Vitals* vitals = nullptr;              // of this process
    std::optional<Succession> succession;  // set in a successor
};

// Returns in the daemon, and again, in a new process, for each successor. REQUIRES: no other thread yet.
// `options`: for the log.
tl::expected<Supervised, std::string> supervise(const DaemonOptions& options);

}  // namespace copper
