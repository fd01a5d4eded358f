#include "base/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace copper {
namespace {

// The steady clock is CLOCK_MONOTONIC (libstdc++, libc++).
timespec to_timespec(TimePoint time) {
    const auto since = time.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
    return {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(since - seconds).count()};
}

}  // namespace

void Doorbell::ring() {
    if (state_.exchange(State::rung) == State::asleep) {
        ::syscall(SYS_futex, &state_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
}

void Doorbell::wait(std::optional<TimePoint> until) {
    const timespec due = to_timespec(until.value_or(TimePoint()));
    auto state = State::silent;
    state_.compare_exchange_strong(state, State::asleep);
    // It also wakes for nothing, or because of a signal.
    while (state_.load() != State::rung && (!until || std::chrono::steady_clock::now() < *until)) {
        ::syscall(SYS_futex, &state_, FUTEX_WAIT_BITSET, State::asleep, until ? &due : nullptr, nullptr,
                  FUTEX_BITSET_MATCH_ANY);
    }
    state = State::asleep;
    state_.compare_exchange_strong(state, State::silent);
}

}  // namespace copper
