// How long a filesystem lets operations wait. Internal to cache/backing/.
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace copper {

// The time that an operation of the calling thread waits for the filesystem. Nothing, if the thread did not
// sleep: then it waited for a processor at most (getrusage(2): a voluntary context switch is a wait for
// something else).
class TimeWaited {
  public:
    std::chrono::nanoseconds elapsed() const {
        return switches() == switches_before_ ? std::chrono::nanoseconds(0)
                                              : std::chrono::steady_clock::now() - began_;
    }

  private:
    static long switches() {
        struct rusage usage {};
        ::getrusage(RUSAGE_THREAD, &usage);
        return usage.ru_nvcsw;
    }

    const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    const long switches_before_ = switches();
};

}  // namespace copper
