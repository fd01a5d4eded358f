// Waits until every node serves, by following the output of launcher and daemons. Does not sleep or poll.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/nodes/ready.hpp"

namespace copper::cli {

enum class LaunchEnd {
    reported,  // rank 0 has made its final report
    ended,     // the launcher ended before that
    timed_out,
    interrupted,  // SIGINT, SIGTERM or SIGHUP
};

struct LaunchOutcome {
    LaunchEnd end = LaunchEnd::timed_out;
    std::optional<Readiness> readiness;  // the last report, perhaps during an earlier wait()
    int status = 0;                      // of the launcher, if it has ended
    std::vector<std::string> tail;       // the last lines that were no reports
};

// Blocks its signals during its whole life. Make one before starting the launcher.
class LaunchWatch {
  public:
    // `log_path`: from path_of(), so that it is the opened file itself. `left_out`: nodes of the job without
    // a daemon, which count in what is shown.
    static Result<LaunchWatch> make(const std::string& log_path, std::size_t left_out);

    // Shows progress on standard error. The launcher must be a child of this process.
    LaunchOutcome wait(pid_t launcher, std::chrono::milliseconds patience);

    // Sends SIGTERM to the launcher's process group, then SIGKILL. True once it has ended.
    void end_launcher(pid_t launcher, std::chrono::milliseconds patience);

  private:
    LaunchWatch(UniqueFd log, UniqueFd changes, UniqueFd signals, std::size_t left_out)
        : log_(std::move(log)),
          changes_(std::move(changes)),
          signals_(std::move(signals)),
          left_out_(left_out) {}
    void read_log();
    // The signal that has arrived; 0 for none.
    int next_signal();
    bool has_ended(pid_t launcher, LaunchOutcome& outcome);
    // Waits for output or a signal; false at the deadline.
    bool wait_for_event(std::chrono::steady_clock::time_point deadline);
    void show_progress(const Readiness& readiness);

    UniqueFd log_, changes_, signals_;
    std::size_t left_out_;
    ReadyReader reader_;
    std::optional<Readiness> readiness_;
    std::string shown_;
    bool ended_ = false;
};

}  // namespace copper::cli
