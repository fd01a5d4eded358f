// Keeps a node's mount when the daemon that serves it is lost: killed, or taken down by its MPI or its
// launcher.
//
// The supervisor is a process of its own, outside the launcher's session and process group. It holds what the
// daemon would take with it (HandOver) and waits. When the daemon ends without having said so, or says
// nothing for so long that it must hang, it forks a successor that goes on with the same mount. A successor
// serves alone, from the backing filesystem: an MPI job takes nobody in again. Programs see a pause.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "base/unique_fd.hpp"
#include "daemon/control/options.hpp"
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
    crashed,         // or was killed, or ended by itself
    launcher_ended,  // which ends its processes; the mirror stays as long as it is used
};

// What a successor starts from.
struct Succession {
    HandOver hand_over;
    Place place;
    Loss loss = Loss::crashed;
    pid_t lost = 0;   // the daemon that was lost
    std::string why;  // it was, in words
};

// The daemon's end of its connection with the supervisor. Not thread-safe. All that it says is a few words to
// a socket that has room for them; where the supervisor is gone, nothing happens.
class SupervisorLink {
  public:
    SupervisorLink() = default;  // no supervisor: a daemon that is lost takes its mount with it
    SupervisorLink(UniqueFd socket, pid_t supervisor) : socket_(std::move(socket)), pid_(supervisor) {}

    // The mount is there.
    void keep(const HandOver& hand_over, Place place, const std::string& mount);
    // All nodes serve: from now on the mount is to outlive this process. Until then it is unmounted.
    void begin();
    // The progress loop runs. To be said every alive_interval from begin() on.
    void is_alive();
    static constexpr std::chrono::seconds alive_interval{1};
    // This process is about to be ended by its launcher; `why` says how that showed.
    void launcher_ends(const std::string& why);
    // The mount is gone, or is to go with this process, and so is all that is left of it on this node.
    void release();
    // Nothing is left. The supervisor ends.
    void dismiss();

    pid_t pid() const { return pid_; }  // 0: none
    explicit operator bool() const { return pid_ != 0; }

  private:
    UniqueFd socket_;
    pid_t pid_ = 0;
};

struct Supervised {
    SupervisorLink link;
    Vitals* vitals = nullptr;              // of this process
    std::optional<Succession> succession;  // this process is a successor
};

// Returns in the daemon; and again, in a process of its own, for each successor that is needed. REQUIRES: no
// other thread yet. `options` are those of the log.
tl::expected<Supervised, std::string> supervise(const DaemonOptions& options);

}  // namespace copper
