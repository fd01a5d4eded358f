// Decides how often the progress loop looks for messages. MPI cannot wake a sleeping thread, so the loop must
// look, but an idle daemon must cost almost nothing.
#pragma once

#include <chrono>

#include "base/clock.hpp"

namespace copper {

// Not thread-safe: only the loop's thread uses it.
class Pacer {
  public:
    using Pause = std::chrono::microseconds;

    struct Options {
        int eager_polls = 4;                   // looks after something moved, with sched_yield between them
        Pause pause_min{20};                   // between looks while traffic is recent
        std::chrono::milliseconds recent{10};  // how long traffic counts as recent
        // The shortest pause while no core is idle: more frequent looks would take time from the programs
        // that cause the traffic (docs/notebook/2026-11-23.md).
        Pause pause_crowded{400};
        Pause pause_max_waiting{200};             // reached by doubling while an answer is awaited
        Pause pause_max{1000};                    // reached by doubling while no answer is awaited
        std::chrono::milliseconds silence{1000};  // after this much silence, pauses get even longer
        Pause pause_max_in_silence{3000};
        // On a machine that rings: MPI may have work of its own, and over TCP, a ring can be faster than its
        // message.
        Pause pause_rung{10'000};
    };
    explicit Pacer(Options options) : options_(options), pause_(options.pause_min) {}

    enum class Activity { moved, waiting, none };  // waiting: nothing moved, but the node expects an answer
    enum class Machine { has_idle_cores, crowded, rings };  // rings: has all senders, and they ring
    // The pause after a look. Zero: look again, after sched_yield.
    Pause next(Activity activity, Machine machine, TimePoint now);

  private:
    const Options options_;
    TimePoint last_move_;
    int polls_ = 0;
    Pause pause_;
};

}  // namespace copper
