// How long something usually takes, and from when on it is slow.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace copper {

// The mean and the mean deviation of late, as TCP keeps them of round trips (RFC 6298, section 2).
class UsualTime {
  public:
    using Duration = std::chrono::microseconds;

    void note(Duration taken) {
        if (!mean_) {
            mean_ = taken;
            deviation_ = taken / 2;
            return;
        }
        const Duration off = taken > *mean_ ? taken - *mean_ : *mean_ - taken;
        deviation_ += (off - deviation_) / 4;
        mean_ = *mean_ + (taken - *mean_) / 8;
    }

    // Beyond what is usual; `least` while nothing is known. REQUIRES: least <= most.
    Duration bound(Duration least, Duration most) const {
        return std::clamp(mean_ ? *mean_ + 4 * deviation_ : least, least, most);
    }

  private:
    std::optional<Duration> mean_;
    Duration deviation_{0};
};

}  // namespace copper
