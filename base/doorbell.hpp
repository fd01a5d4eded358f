// What one thread sleeps on, and others ring, also those of other processes if it lies in memory that they
// share. The mechanism is futex(2).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.hpp"

namespace copper {

class Doorbell {
  public:
    // From any thread. Does not block, and costs a system call only if the other one sleeps.
    void ring();

    // All below belong to the thread that sleeps. Forgets rings up to now: look for what they were about
    // after this, not before.
    void reset() { state_.exchange(State::silent); }
    // Returns once it was rung since reset(), or at `until`, which does not come if it is empty.
    void wait(std::optional<TimePoint> until);

  private:
    enum class State : std::uint32_t { silent, rung, asleep };
    std::atomic<State> state_ = State::silent;
    static_assert(sizeof(state_) == 4 && decltype(state_)::is_always_lock_free);
};

}  // namespace copper
