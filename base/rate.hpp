// How fast something has been of late.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace copper {

// A mean over the measurements of bytes and the time that they took, in which an earlier one weighs less.
class Rate {
  public:
    void add(std::size_t bytes, std::chrono::nanoseconds time) {
        constexpr double kept = 0.9;
        bytes_ = kept * bytes_ + static_cast<double>(bytes);
        seconds_ = kept * seconds_ + std::chrono::duration<double>(time).count();
    }

    // 0: nothing has been measured.
    double bytes_per_second() const { return seconds_ > 0 ? bytes_ / seconds_ : 0; }

  private:
    double bytes_ = 0;
    double seconds_ = 0;
};

// What a node knows of its own sending.
struct Link {
    double bytes_per_second = 0;        // at best of late; 0: not known
    std::uint64_t bytes_under_way = 0;  // that wait to leave, or are leaving
};

// What a link achieves at best of late: a receiver that is busy makes it look slower than it is. Judged by
// whole spans, because messages that waited behind each other in a buffer are reported in bunches, each
// faster than any link.
class LinkRate {
  public:
    static constexpr std::chrono::milliseconds span_time{50};
    static constexpr std::size_t span_bytes = 64U << 20;  // a fast link's: it need not take that long

    void add(std::size_t bytes, std::chrono::nanoseconds time) {
        constexpr double kept = 0.9;  // half of it after 7 spans
        bytes_ += bytes;
        time_ += time;
        if (time_ >= span_time || (bytes_ >= span_bytes && time_.count() > 0)) {
            best_ = std::max(static_cast<double>(bytes_) / std::chrono::duration<double>(time_).count(),
                             kept * best_);
            bytes_ = 0;
            time_ = {};
        }
    }

    // 0: no span has ended.
    double bytes_per_second() const { return best_; }

  private:
    std::size_t bytes_ = 0;
    std::chrono::nanoseconds time_{0};
    double best_ = 0;
};

}  // namespace copper
