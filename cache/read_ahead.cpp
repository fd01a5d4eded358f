#include "cache/read_ahead.hpp"

#include <algorithm>

namespace copper {
namespace {

// Several threads serve the requests of one program, so requests can arrive this far out of order.
constexpr std::uint32_t disorder_max = 2;
constexpr std::uint32_t window_min = 2;

}  // namespace

ExtentRange ReadAhead::next(ExtentRange read, std::uint32_t extents, std::uint32_t window_max) {
    const bool in_order =
        begun_ && read.begin <= fetched_ + disorder_max && read.end + window_ + disorder_max >= fetched_;
    begun_ = true;
    if (!in_order) {
        fetched_ = read.end;
        window_ = 0;
        return {};
    }
    fetched_ = std::max(fetched_, read.end);
    // Half of the window is used up: fetch a batch.
    if (fetched_ - read.end > window_ / 2) {
        return {};
    }
    window_ = std::min(std::max(window_ * 2, window_min), window_max);
    const ExtentRange ahead{fetched_, std::max(fetched_, std::min(extents, read.end + window_))};
    fetched_ = ahead.end;
    return ahead;
}

}  // namespace copper
