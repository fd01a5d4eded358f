#include "collectives/reading.hpp"

#include <algorithm>

namespace copper {

void Reading::begin(const ObjectKey& key, Purpose purpose, std::chrono::milliseconds spent, TimePoint now) {
    const bool in_office = purpose == Purpose::in_office;
    const Read read{.purpose = purpose,
                    .began = now - spent,
                    .next_word = now + options_.deadline / words_per_deadline,
                    .slow_at = in_office ? now + options_.deadline / 2 : TimePoint::max()};
    reads_.emplace(key, read);
    direct_reads_ += purpose == Purpose::direct ? 1 : 0;
    set_timer(key, read);
}

std::optional<Reading::Purpose> Reading::end(const ObjectKey& key) {
    const auto entry = reads_.find(key);
    if (entry == reads_.end()) {
        return std::nullopt;
    }
    const Purpose purpose = entry->second.purpose;
    direct_reads_ -= purpose == Purpose::direct ? 1 : 0;
    timers_.cancel(key);
    reads_.erase(entry);
    return purpose;
}

std::chrono::milliseconds Reading::spent(const ObjectKey& key, TimePoint now) const {
    return std::chrono::ceil<std::chrono::milliseconds>(now - reads_.at(key).began);
}

std::optional<Reading::Due> Reading::take_due(TimePoint now) {
    auto key = timers_.take_due(now);
    if (!key) {
        return std::nullopt;
    }
    Read& read = reads_.at(*key);
    Due::Next next = Due::Next::is_slow;
    if (now >= read.slow_at) {
        read.slow_at = TimePoint::max();
    } else {
        read.next_word = now + options_.deadline / words_per_deadline;
        next = Due::Next::tell_working;
    }
    set_timer(*key, read);
    return Due{std::move(*key), next};
}

void Reading::excuse(const ObjectKey& key, TimePoint now) {
    Read& read = reads_.at(key);
    read.slow_at = now + options_.deadline / 2;
    set_timer(key, read);
}

}  // namespace copper
