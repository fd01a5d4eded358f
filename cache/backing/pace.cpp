#include "cache/backing/pace.hpp"

#include <algorithm>
#include <numeric>

#include "cache/batch_evidence.hpp"

namespace copper {

using std::chrono::nanoseconds;

// The mean without the longest quarter: stalls are not the pace, but operations that no cache answers are.
nanoseconds Pace::Times::usual() const {
    const std::size_t count = std::min(noted, latest_max);
    const std::size_t kept = count - count / 4;
    if (kept == 0) {
        return nanoseconds(0);
    }
    auto sorted = times;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
    return std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(kept),
                           nanoseconds(0)) /
           static_cast<std::int64_t>(kept);
}

void Pace::note(Kind kind, nanoseconds waited) {
    latest_.lock()->waited[static_cast<std::size_t>(kind)].add(waited);
}

// Where lookups are serial, n at once take n times as long as one. (So they seem to where all answers come at
// once, and the processor is busy.)
void Pace::note_look_up(std::uint32_t others, nanoseconds waited) {
    auto latest = latest_.lock();
    Times& alone = latest->waited[static_cast<std::size_t>(Kind::look_up)];
    if (others == 0) {
        alone.add(waited);
    } else if (others >= others_min) {
        latest->shared.add(waited / (others + 1));
        is_serial_ = latest->shared.noted >= shared_min && alone.usual() >= BatchEvidence::fast_operation &&
                     2 * latest->shared.usual() > alone.usual();
    }
}

std::chrono::microseconds Pace::operation_time() const {
    auto latest = latest_.lock();
    nanoseconds longest{0};
    for (const Times& of_kind : latest->waited) {
        longest = std::max(longest, of_kind.usual());
    }
    return std::chrono::ceil<std::chrono::microseconds>(longest);
}

}  // namespace copper
