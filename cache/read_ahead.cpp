#include "cache/read_ahead.hpp"

#include <algorithm>

namespace copper {
namespace {

// Several threads serve the requests of one program, so requests can arrive this far out of order.
constexpr std::uint32_t disorder_max = 2;
constexpr std::uint32_t window_min = 2;

}  // namespace

bool ReadAhead::Stream::has_next(ExtentRange read) const {
    return read.begin <= fetched + disorder_max && read.end + window + disorder_max >= fetched;
}

ExtentRange ReadAhead::Stream::next(ExtentRange read, std::uint32_t extents, std::uint32_t window_max) {
    fetched = std::max(fetched, read.end);
    // Half of the window is used up: fetch a batch.
    if (fetched - read.end > window / 2) {
        return {};
    }
    window = std::min(std::max(window * 2, window_min), window_max);
    const ExtentRange ahead{fetched, std::max(fetched, std::min(extents, read.end + window))};
    fetched = ahead.end;
    return ahead;
}

ExtentRange ReadAhead::next(ExtentRange read, std::uint32_t extents, std::uint32_t window_max) {
    const auto known =
        std::ranges::find_if(streams_, [read](const Stream& stream) { return stream.has_next(read); });
    if (known != streams_.end()) {
        std::rotate(streams_.begin(), known, known + 1);
        return streams_.front().next(read, extents, window_max);
    }
    streams_.insert(streams_.begin(), {.fetched = read.end});
    if (streams_.size() > streams_max) {
        streams_.pop_back();
    }
    return {};
}

}  // namespace copper
