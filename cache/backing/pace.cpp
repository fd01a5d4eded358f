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
    state_.lock()->waited[static_cast<std::size_t>(kind)].add(waited);
}

bool Pace::look_up_begins(std::uint64_t directory) {
    auto state = state_.lock();
    return state->lookups[directory % state->lookups.size()].under_way++ == 0;
}

// Where lookups are serial, they end one by one as slowly as one alone, however many are under way. (So they
// do where all answers come at once, and the processor is busy.)
void Pace::look_up_ended(std::uint64_t directory, TimePoint now) {
    auto state = state_.lock();
    Lookups& lookups = state->lookups[directory % state->lookups.size()];
    if (--lookups.under_way < together_min) {
        lookups.ended = 0;
    } else if (++lookups.ended == 1) {
        lookups.together_since = now;
    } else if (lookups.ended > ended_min) {
        const nanoseconds alone = state->waited[static_cast<std::size_t>(Kind::look_up)].usual();
        const nanoseconds each = (now - lookups.together_since) / ended_min;
        is_serial_ = alone >= BatchEvidence::fast_operation && 2 * each > alone;
        lookups.ended = 0;
    }
}

std::chrono::microseconds Pace::operation_time() const {
    auto state = state_.lock();
    nanoseconds longest{0};
    for (const Times& of_kind : state->waited) {
        longest = std::max(longest, of_kind.usual());
    }
    return std::chrono::ceil<std::chrono::microseconds>(longest);
}

}  // namespace copper
