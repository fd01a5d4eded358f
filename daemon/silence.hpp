// How long a process has been silent although it could have spoken.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace copper {

// A process that is stopped, that waits in the kernel (for memory that was swapped out), or that gets no
// processor is not dead: it goes on. Nor did it have time to speak while this process was stopped, too. So
// only the rest of the time counts. Not thread-safe.
class Silence {
  public:
    using Clock = std::chrono::steady_clock;

    // How often to look, at least.
    static constexpr std::chrono::milliseconds look_interval{1000};

    // `process`: its main thread is meant.
    explicit Silence(pid_t process) : process_(process) { end(); }

    // It has spoken.
    void end();
    // Its length now. What happened between two looks is known by the second one.
    Clock::duration look();

  private:
    const pid_t process_;
    Clock::time_point looked_;
    Clock::duration waited_{0};  // for a processor, in its life
    Clock::duration length_{0};
};

}  // namespace copper
