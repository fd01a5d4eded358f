// How fast a filesystem answers. Internal to cache/backing/.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/guarded.hpp"

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

// Thread-safe. On a busy machine an operation takes longer than its filesystem does. So a filesystem is as
// fast as the fastest of the last few operations.
class OperationTimes {
  public:
    static constexpr std::size_t remembered = 8;

    // An operation on this filesystem (st_dev) took so long. Returns how long one takes.
    std::chrono::microseconds note(std::uint64_t filesystem, std::chrono::nanoseconds time) {
        auto table = table_.lock();
        if (table->size() >= filesystems_max && !table->contains(filesystem)) {
            table->clear();
        }
        const auto [entry, is_new] = table->try_emplace(filesystem);
        Known& known = entry->second;
        if (is_new) {
            known.last.fill(std::chrono::nanoseconds::max());
        }
        known.last[known.count++ % remembered] = time;
        return std::chrono::ceil<std::chrono::microseconds>(
            *std::min_element(known.last.begin(), known.last.end()));
    }

  private:
    static constexpr std::size_t filesystems_max = 64;
    struct Known {
        std::array<std::chrono::nanoseconds, remembered> last;
        std::size_t count = 0;
    };
    Guarded<std::unordered_map<std::uint64_t, Known>> table_;
};

}  // namespace copper
