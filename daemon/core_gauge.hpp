// Whether a core of this machine is idle.
#pragma once

#include <chrono>

#include "base/unique_fd.hpp"
#include "cache/cache.hpp"

namespace copper {

// Not thread-safe. Looks at /proc/loadavg (proc(5): its fourth field counts the threads that run or want to),
// at most once in look_interval.
class CoreGauge {
  public:
    CoreGauge();

    // More threads want to run than there are cores, the caller's among them.
    bool is_crowded(TimePoint now);

  private:
    static constexpr std::chrono::milliseconds look_interval{5};

    const long cores_;
    UniqueFd loadavg_;
    TimePoint next_look_;
    bool crowded_ = false;
};

}  // namespace copper
