// Times at which something is due.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "cache/object.hpp"

namespace copper {

// Nothing if there is neither.
inline std::optional<TimePoint> earlier(std::optional<TimePoint> one, std::optional<TimePoint> other) {
    return one && other ? std::min(*one, *other) : one ? one : other;
}

// One timer per object.
class Timers {
  public:
    // Replaces the object's timer.
    void set(const ObjectKey& key, TimePoint due) {
        cancel(key);
        due_.emplace(key, due);
        order_.emplace(due, key);
    }

    void cancel(const ObjectKey& key) {
        if (const auto set = due_.find(key); set != due_.end()) {
            order_.erase({set->second, key});
            due_.erase(set);
        }
    }

    std::optional<TimePoint> next() const {
        return order_.empty() ? std::nullopt : std::optional(order_.begin()->first);
    }

    // An object whose timer is due. Removes the timer.
    std::optional<ObjectKey> take_due(TimePoint now) {
        if (order_.empty() || order_.begin()->first > now) {
            return std::nullopt;
        }
        ObjectKey key = order_.begin()->second;
        cancel(key);
        return key;
    }

  private:
    std::map<ObjectKey, TimePoint> due_;
    std::set<std::pair<TimePoint, ObjectKey>> order_;
};

}  // namespace copper
