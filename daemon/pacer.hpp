// How eagerly the progress loop looks for messages: MPI cannot wake a sleeping thread, so it must look, and
// an idle daemon must cost about nothing.
#pragma once

#include <chrono>

#include "cache/cache.hpp"

namespace copper {

// Not thread-safe: belongs to the loop's thread.
class Pacer {
  public:
    using Pause = std::chrono::microseconds;

    struct Options {
        int eager_polls = 4;                   // with sched_yield between them, after something moved
        Pause pause_min{20};                   // then pauses, this long while traffic is recent
        std::chrono::milliseconds recent{10};  // how long traffic is recent
        // The shortest pause while no core is idle: to look more often would take the time from those who
        // make the traffic (docs/measurements.md).
        Pause pause_crowded{400};
        Pause pause_max_waiting{200};             // reached by doubling when an answer is awaited for longer
        Pause pause_max{1000};                    // reached by doubling when it is not
        std::chrono::milliseconds silence{1000};  // after which even longer pauses are right
        Pause pause_max_in_silence{3000};
    };
    explicit Pacer(Options options) : options_(options), pause_(options.pause_min) {}

    enum class Activity { moved, waiting, none };  // waiting: nothing moved, but an answer is expected
    enum class Machine { has_idle_cores, crowded };
    // How long to pause after a look; zero: look again, after sched_yield.
    Pause next(Activity activity, Machine machine, TimePoint now);

  private:
    const Options options_;
    TimePoint last_move_;
    int polls_ = 0;
    Pause pause_;
};

}  // namespace copper
