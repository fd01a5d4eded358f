// The connection between a daemon and its supervisor (supervisor.hpp).
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "daemon/control/view.hpp"
#include "fuse/lasting_memory.hpp"

namespace copper {

// A node's place in the job.
struct Place {
    std::uint32_t rank = 0;
    std::uint32_t nodes = 1;
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

// What the supervisor hears.
enum class Word : std::uint8_t { keep, keep_view, hold, begin, is_alive, launcher_ends, release, dismiss };

// One packet. `keep` comes with the two descriptors of a HandOver, `keep_view` with the end of a pipe and
// those of a View, `hold` with one.
struct Packet {
    Word word = Word::dismiss;
    Place place = {};
    std::array<char, PATH_MAX> text = {};  // the mount point, or why the launcher ends the daemon
};

// Nothing when the connection has ended.
std::optional<Packet> receive_packet(int socket, std::vector<UniqueFd>& descriptors);

}  // namespace copper
