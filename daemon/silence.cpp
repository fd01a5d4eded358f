#include "daemon/silence.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/processes.hpp"

namespace copper {
namespace {

// Documentation/scheduler/sched-stats.rst: the nanoseconds on a processor, and those of waiting for one.
Silence::Clock::duration time_waited(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/schedstat");
    std::int64_t ran = 0;
    std::int64_t waited = 0;
    file >> ran >> waited;
    return std::chrono::nanoseconds(waited);
}

}  // namespace

void Silence::end() {
    looked_ = Clock::now();
    waited_ = time_waited(process_);
    length_ = Clock::duration(0);
}

Silence::Clock::duration Silence::look() {
    const auto now = Clock::now();
    const auto waited = time_waited(process_);
    const char state = state_letter(process_);
    if (state != 'T' && state != 't' && state != 'D') {
        const Clock::duration passed = std::min<Clock::duration>(now - looked_, 2 * look_interval);
        length_ += std::max(passed - (waited - waited_), Clock::duration(0));
    }
    looked_ = now;
    waited_ = waited;
    return length_;
}

}  // namespace copper
