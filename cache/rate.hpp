// How fast something has been of late.
#pragma once

#include <chrono>
#include <cstddef>

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

}  // namespace copper
