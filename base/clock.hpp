// Points in time on this node's steady clock.
#pragma once

#include <chrono>
#include <functional>

namespace copper {

using TimePoint = std::chrono::steady_clock::time_point;

// Tells the present time. Tests and simulations have their own.
using Clock = std::function<TimePoint()>;

}  // namespace copper
