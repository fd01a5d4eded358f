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

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/processes.hpp"
#include "base/unique_fd.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/view.hpp"
#include "daemon/vitals.hpp"
#include "fuse/lasting_memory.hpp"

namespace copper {

// A node's place in the job.
struct Place {
    std::uint32_t rank = 0;
    std::uint32_t nodes = 1;
};

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

// The daemon's end of its connection with the supervisor. Not thread-safe. Sends only a few words, for which
// the socket always has room. Does nothing if the supervisor is gone.
class SupervisorLink {
  public:
    SupervisorLink() = default;  // no supervisor: the mount ends with the daemon
    SupervisorLink(UniqueFd socket, pid_t supervisor) : socket_(std::move(socket)), pid_(supervisor) {}

    // The mount exists.
    void keep(const HandOver& hand_over, Place place, const std::string& mount);
    // The descriptor stays open, whatever happens to this process.
    void hold(int descriptor);
    // The view stays until the mount ends. Returns when the supervisor has it; false if it does not take it.
    // From any thread.
    bool keep(const View& view);
    // All nodes serve: from now on the mount must outlive this process. Before, losing this process ends the
    // mount.
    void begin();
    // The progress loop runs. Send this every alive_interval, starting with begin().
    void is_alive();
    static constexpr std::chrono::seconds alive_interval{1};
    // The launcher is about to end this process; `why` says how this process knows.
    void launcher_ends(const std::string& why);
    // The mount and everything else on this node is gone, or will end with this process.
    void release();
    // Nothing is left, and the supervisor ends. Until then it stays, and cleans up itself if the daemon is
    // lost after its unmount: Open MPI ends a process whose link breaks, and links break when others leave.
    void dismiss();

    pid_t pid() const { return pid_; }  // 0: none
    explicit operator bool() const { return pid_ != 0; }

  private:
    UniqueFd socket_;
    pid_t pid_ = 0;
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
