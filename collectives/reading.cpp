#include "collectives/reading.hpp"

#include <algorithm>

namespace copper {
namespace {

ReadQueue::ReadFor whom_for(Reading::Purpose purpose, FetchFor why) {
    return purpose != Reading::Purpose::in_office ? ReadQueue::ReadFor::this_node
           : why == FetchFor::demand              ? ReadQueue::ReadFor::the_job
                                                  : ReadQueue::ReadFor::the_job_ahead;
}

}  // namespace

void Reading::add(const ObjectKey& key, Purpose purpose, FetchFor why, std::chrono::milliseconds spent,
                  TimePoint now) {
    const Read read{.purpose = purpose,
                    .whom = whom_for(purpose, why),
                    .asked = now - spent,
                    .next_word = now + options_.deadline / words_per_deadline};
    reads_.emplace(key, read);
    direct_reads_ += purpose == Purpose::direct ? 1 : 0;
    queue_.add(key, read.whom);
    set_timer(key, read);
}

void Reading::promote(const ObjectKey& key) {
    Read& read = reads_.at(key);
    if (queue_.has(key) && read.whom == ReadQueue::ReadFor::the_job_ahead) {
        read.whom = ReadQueue::ReadFor::the_job;
        queue_.promote(key);
    }
}

void Reading::begin_reads(std::uint64_t backlog_bytes, TimePoint now,
                          const std::function<void(const ObjectKey&)>& begin) {
    queue_.begin_reads(backlog_bytes, [&](const ObjectKey& key, ReadQueue::ReadFor) {
        Read& read = reads_.at(key);
        read.began = moved_ = now;
        if (read.purpose == Purpose::in_office) {
            read.slow_at = now + options_.deadline / 2;
        }
        set_timer(key, read);
        begin(key);
    });
}

Reading::Purpose Reading::remove(std::map<ObjectKey, Read>::iterator entry) {
    const Purpose purpose = entry->second.purpose;
    direct_reads_ -= purpose == Purpose::direct ? 1 : 0;
    timers_.cancel(entry->first);
    reads_.erase(entry);
    return purpose;
}

std::optional<Reading::Purpose> Reading::end(const ObjectKey& key, TimePoint now) {
    const auto entry = reads_.find(key);
    if (entry == reads_.end() || !entry->second.began) {
        return std::nullopt;
    }
    const Read& read = entry->second;
    queue_.ended(read.whom);
    moved_ = now;
    if (read.slow_at != TimePoint::max()) {
        last_ended_ = Ended{.at = now, .took = now - *read.began};
    }
    return remove(entry);
}

std::optional<Reading::Purpose> Reading::drop(const ObjectKey& key) {
    if (!queue_.has(key)) {
        return std::nullopt;
    }
    queue_.drop(key);
    return remove(reads_.find(key));
}

std::chrono::milliseconds Reading::spent(const ObjectKey& key, TimePoint now) const {
    return std::chrono::ceil<std::chrono::milliseconds>(now - reads_.at(key).asked);
}

bool Reading::has_recovered(const ObjectKey& key) const {
    const auto entry = reads_.find(key);
    return entry != reads_.end() && entry->second.slow_in_queue && moved_ > *entry->second.slow_in_queue;
}

Working Reading::working(const ObjectKey& key, TimePoint now) const {
    const Read& read = reads_.at(key);
    return {.key = key,
            .spent = spent(key, now),
            .still = std::chrono::floor<std::chrono::milliseconds>(now - read.began.value_or(moved_)),
            .place_in_queue = read.began ? 0 : queue_.before(key) + 1};
}

// Half a deadline is long, unless a read that took at least half as long has ended since: the filesystem
// serves many, one after the other, and another reader would only make them more.
bool Reading::is_slow(Read& read, TimePoint now) const {
    if (now < read.slow_at) {
        return false;
    }
    read.slow_at = TimePoint::max();
    if (last_ended_ && last_ended_->at > now - options_.deadline / 2 &&
        *read.began + 2 * last_ended_->took > now) {
        read.slow_at = *read.began + 2 * last_ended_->took;
        return false;
    }
    return true;
}

std::optional<TimePoint> Reading::queue_slow_at() const {
    return queue_.first_without_thread() != nullptr
               ? std::optional(std::max(moved_, found_slow_) + options_.deadline / 2)
               : std::nullopt;
}

std::optional<Reading::Due> Reading::take_due(TimePoint now) {
    if (const auto slow_at = queue_slow_at(); slow_at && *slow_at <= now) {
        found_slow_ = now;
        const ObjectKey& first = *queue_.first_without_thread();
        reads_.at(first).slow_in_queue = now;
        return Due{first, Due::Next::is_slow};
    }
    auto key = timers_.take_due(now);
    if (!key) {
        return std::nullopt;
    }
    Read& read = reads_.at(*key);
    const bool is_slow_now = is_slow(read, now);
    const bool is_word_due = !is_slow_now && now >= read.next_word;
    if (is_word_due) {
        read.next_word = now + options_.deadline / words_per_deadline;
    }
    set_timer(*key, read);
    if (!is_slow_now && !is_word_due) {
        return take_due(now);
    }
    return Due{std::move(*key), is_slow_now ? Due::Next::is_slow : Due::Next::tell_working};
}

}  // namespace copper
