// What happens in a simulation, in the order of its times.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace copper::sim {

class Events {
  public:
    TimePoint now() const { return now_; }
    bool empty() const { return events_.empty(); }

    void at(TimePoint when, std::function<void()> happen) {
        events_.push({when, next_order_++, std::move(happen)});
    }

    // Until nothing is left, or what is left is later.
    void run(TimePoint last = TimePoint::max()) {
        while (!events_.empty() && events_.top().at <= last) {
            const auto happen = std::move(const_cast<Event&>(events_.top()).happen);  // it is popped next
            now_ = events_.top().at;
            events_.pop();
            happen();
        }
    }

  private:
    struct Event {
        TimePoint at;
        std::uint64_t order = 0;  // events of one time happen in the order in which they were made
        std::function<void()> happen;
        bool operator>(const Event& other) const {
            return at != other.at ? at > other.at : order > other.order;
        }
    };

    TimePoint now_{};
    std::uint64_t next_order_ = 0;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace copper::sim
