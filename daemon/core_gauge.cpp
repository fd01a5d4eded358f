#include "daemon/core_gauge.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace copper {

CoreGauge::CoreGauge()
    : cores_(::sysconf(_SC_NPROCESSORS_ONLN)), loadavg_(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)) {}

bool CoreGauge::is_crowded(TimePoint now) {
    if (now < next_look_) {
        return crowded_;
    }
    next_look_ = now + look_interval;
    std::array<char, 128> text = {};
    long running = 0;
    if (::pread(loadavg_.get(), text.data(), text.size() - 1, 0) > 0 &&
        std::sscanf(text.data(), "%*s %*s %*s %ld/", &running) == 1) {
        crowded_ = running > cores_;
    }
    return crowded_;
}

}  // namespace copper
