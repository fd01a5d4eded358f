// Tells whether all cores of this machine are busy.
#pragma once

#include <chrono>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace copper {

// Not thread-safe. Reads /proc/loadavg (proc(5): the fourth field counts the threads that run or want to
// run), at most once per look_interval.
class CoreGauge {
  public:
    CoreGauge();

    // More threads want to run than there are cores. The calling thread counts.
    bool is_crowded(TimePoint now);

  private:
    static constexpr std::chrono::milliseconds look_interval{5};

    const long cores_;
    UniqueFd loadavg_;
    TimePoint next_look_;
    bool crowded_ = false;
};

}  // namespace copper
