#include "cache/backing/pace.hpp"

#include <algorithm>
#include <numeric>

namespace copper {
namespace {

using std::chrono::nanoseconds;

// REQUIRES: values is not empty.
nanoseconds median(std::vector<nanoseconds> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

void Pace::note(Kind kind, nanoseconds waited) {
    auto latest = latest_.lock();
    Latest& of_kind = (*latest)[static_cast<std::size_t>(kind)];
    of_kind.waited[of_kind.noted++ % latest_max] = waited;
}

// The mean without the longest quarter: stalls are not the pace, but operations that no cache answers are.
nanoseconds Pace::expected(const Latest& latest) {
    const std::size_t count = std::min(latest.noted, latest_max);
    const std::size_t kept = count - count / 4;
    if (kept == 0) {
        return nanoseconds(0);
    }
    auto waited = latest.waited;
    std::sort(waited.begin(), waited.begin() + static_cast<std::ptrdiff_t>(count));
    return std::accumulate(waited.begin(), waited.begin() + static_cast<std::ptrdiff_t>(kept),
                           nanoseconds(0)) /
           static_cast<std::int64_t>(kept);
}

std::chrono::microseconds Pace::operation_time() const {
    auto latest = latest_.lock();
    nanoseconds longest{0};
    for (const Latest& of_kind : *latest) {
        longest = std::max(longest, expected(of_kind));
    }
    return std::chrono::ceil<std::chrono::microseconds>(longest);
}

bool Pace::note_lookups(std::vector<nanoseconds> alone, std::vector<nanoseconds> together) {
    // Half of them, because a few may stall.
    const auto half = static_cast<std::int64_t>((together.size() + 1) / 2);
    const bool is_at_once = 2 * median(std::move(together)) < half * median(std::move(alone));
    if (is_at_once) {
        is_at_once_ = true;  // no load makes calls faster
    } else {
        ++told_serial_;
    }
    return is_at_once;
}

Pace::Lookups Pace::lookups() const {
    return is_at_once_                       ? Lookups::at_once
           : told_serial_ >= told_serial_min ? Lookups::serial
                                             : Lookups::unknown;
}

}  // namespace copper
