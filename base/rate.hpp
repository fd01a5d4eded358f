// How fast a link or a codec has recently been.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace copper {

// Bytes per second over all measurements; older ones weigh less.
class Rate {
  public:
    void add(std::size_t bytes, std::chrono::nanoseconds time) {
        constexpr double kept = 0.9;
        bytes_ = kept * bytes_ + static_cast<double>(bytes);
        seconds_ = kept * seconds_ + std::chrono::duration<double>(time).count();
    }

    // 0 before the first measurement.
    double bytes_per_second() const { return seconds_ > 0 ? bytes_ / seconds_ : 0; }

  private:
    double bytes_ = 0;
    double seconds_ = 0;
};

// What a node knows about its own sending.
struct Link {
    double bytes_per_second = 0;        // the best recent rate; 0 if unknown
    std::uint64_t bytes_under_way = 0;  // waiting to leave, or leaving
};

// The best recent rate of a link. The best, because a busy receiver makes the link look slower than it is.
// Measured in spans, because messages that queued behind each other complete in bunches, each faster than any
// link.
class LinkRate {
  public:
    static constexpr std::chrono::milliseconds span_time{50};
    static constexpr std::size_t span_bytes = 64U << 20;  // ends a span early on a fast link

    void add(std::size_t bytes, std::chrono::nanoseconds time) {
        constexpr double kept = 0.9;  // half after 7 spans
        bytes_ += bytes;
        time_ += time;
        if (time_ >= span_time || (bytes_ >= span_bytes && time_.count() > 0)) {
            best_ = std::max(static_cast<double>(bytes_) / std::chrono::duration<double>(time_).count(),
                             kept * best_);
            bytes_ = 0;
            time_ = {};
        }
    }

    // 0 before the first span ends.
    double bytes_per_second() const { return best_; }

  private:
    std::size_t bytes_ = 0;
    std::chrono::nanoseconds time_{0};
    double best_ = 0;
};

}  // namespace copper
