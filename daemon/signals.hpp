// Turns signals into calls in a thread of their own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>

#include "base/unique_fd.hpp"

namespace copper {

// Handles SIGTERM, SIGINT, SIGHUP and SIGALRM, and ignores SIGPIPE.
//
// REQUIRES: constructed before all other threads, so that they inherit the blocked signals and are never
// interrupted.
class SignalWatcher {
  public:
    // `sender`: the process that sent the signal; 0: the kernel.
    explicit SignalWatcher(std::function<void(int signal, pid_t sender)> on_signal);
    ~SignalWatcher();
    SignalWatcher(const SignalWatcher&) = delete;
    SignalWatcher& operator=(const SignalWatcher&) = delete;

  private:
    void watch();

    const std::function<void(int, pid_t)> on_signal_;
    UniqueFd signals_;
    UniqueFd end_;
    std::thread thread_;
};

}  // namespace copper
