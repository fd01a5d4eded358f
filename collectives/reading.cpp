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

void Reading::add(const ObjectKey& key, const std::string& filesystem, Purpose purpose, FetchFor why,
                  std::chrono::milliseconds spent, TimePoint now) {
    const auto place =
        filesystems_.try_emplace(filesystem, Filesystem{.queue = ReadQueue(options_.queue), .answered = now})
            .first;
    const Read read{.filesystem = place,
                    .purpose = purpose,
                    .whom = whom_for(purpose, why),
                    .asked = now - spent,
                    .next_word = now + options_.deadline / words_per_deadline};
    reads_.emplace(key, read);
    place->second.direct_reads += purpose == Purpose::direct ? 1 : 0;
    place->second.queue.set_serial(is_serial_(filesystem));
    place->second.queue.add(key, read.whom);
    set_timer(key, read);
}

std::optional<Reading::Purpose> Reading::queued_for(const ObjectKey& key) const {
    const auto entry = reads_.find(key);
    return entry != reads_.end() && !entry->second.called ? std::optional(entry->second.purpose)
                                                          : std::nullopt;
}

void Reading::promote(const ObjectKey& key) {
    Read& read = reads_.at(key);
    if (!read.called && read.whom == ReadQueue::ReadFor::the_job_ahead) {
        read.whom = ReadQueue::ReadFor::the_job;
        read.filesystem->second.queue.promote(key);
    }
}

void Reading::begin_reads(std::uint64_t backlog_bytes, TimePoint now,
                          const std::function<void(const ObjectKey&)>& begin) {
    for (auto& [name, filesystem] : filesystems_) {
        filesystem.queue.begin_reads(backlog_bytes, options_.reads_max - in_flight_,
                                     [&, &filesystem = filesystem](const ObjectKey& key, ReadQueue::ReadFor) {
                                         Read& read = reads_.at(key);
                                         read.called = now;
                                         if (filesystem.queue.in_flight() == 1) {
                                             filesystem.answered = now;
                                         }
                                         if (read.purpose == Purpose::in_office) {
                                             read.slow_at = now + slow_after();
                                         }
                                         set_timer(key, read);
                                         ++in_flight_;
                                         begin(key);
                                     });
    }
}

Reading::Purpose Reading::remove(std::map<ObjectKey, Read>::iterator entry) {
    const auto [filesystem, purpose] = std::pair(entry->second.filesystem, entry->second.purpose);
    timers_.cancel(entry->first);
    reads_.erase(entry);
    filesystem->second.direct_reads -= purpose == Purpose::direct ? 1 : 0;
    if (filesystem->second.queue.empty()) {
        filesystems_.erase(filesystem);
    }
    return purpose;
}

std::optional<Reading::Purpose> Reading::end(const ObjectKey& key, TimePoint now) {
    const auto entry = reads_.find(key);
    if (entry == reads_.end() || !entry->second.called) {
        return std::nullopt;
    }
    Read& read = entry->second;
    Filesystem& filesystem = read.filesystem->second;
    if (read.slow_at != TimePoint::max()) {
        filesystem.last_ended = Ended{.at = now, .took = now - *read.called};
    }
    filesystem.answered = now;
    filesystem.queue.ended(key, read.whom);
    --in_flight_;
    return remove(entry);
}

std::optional<Reading::Purpose> Reading::drop(const ObjectKey& key) {
    const auto entry = reads_.find(key);
    if (entry == reads_.end() || entry->second.called) {
        return std::nullopt;
    }
    entry->second.filesystem->second.queue.drop(key);
    return remove(entry);
}

std::chrono::milliseconds Reading::spent(const ObjectKey& key, TimePoint now) const {
    return std::chrono::ceil<std::chrono::milliseconds>(now - reads_.at(key).asked);
}

bool Reading::is_slow_elsewhere(const ObjectKey& key, TimePoint now) const {
    const auto entry = reads_.find(key);
    return entry != reads_.end() && entry->second.found_slow &&
           now - *entry->second.found_slow >= slow_after();
}

Working Reading::working(const ObjectKey& key, TimePoint now) const {
    const Read& read = reads_.at(key);
    const Filesystem& filesystem = read.filesystem->second;
    return {.key = key,
            .spent = spent(key, now),
            .still = std::chrono::floor<std::chrono::milliseconds>(now -
                                                                   read.called.value_or(filesystem.answered)),
            .place_in_queue = read.called ? 0 : filesystem.queue.before(key) + 1};
}

bool Reading::has_room_for_direct(const std::string& filesystem) const {
    const auto found = filesystems_.find(filesystem);
    return found == filesystems_.end() || found->second.direct_reads < options_.direct_reads_max;
}

std::map<std::string, TimePoint> Reading::silent(TimePoint now) const {
    std::map<std::string, TimePoint> found;
    for (const auto& [name, filesystem] : filesystems_) {
        if (filesystem.queue.in_flight() > 0 && now - filesystem.answered >= slow_after()) {
            found.emplace(name, filesystem.answered);
        }
    }
    return found;
}

std::uint64_t Reading::queued() const {
    return reads_.size() - in_flight_;
}

void Reading::resign(TimePoint now) {
    is_in_office_ = false;
    for (auto& [key, read] : reads_) {
        if (read.slow_at != TimePoint::max()) {
            read.slow_at = std::max(now, *read.called + slow_after());
            set_timer(key, read);
        }
    }
}

// A read may make many calls, one after the other.
void Reading::follow(const ObjectKey& key, Read& read) {
    if (!read.called) {
        return;
    }
    if (const TimePoint called = latest_call_(key); called > *read.called) {
        read.called = called;
        Filesystem& filesystem = read.filesystem->second;
        filesystem.answered = std::max(filesystem.answered, called);
        if (read.slow_at != TimePoint::max()) {
            read.slow_at = std::max(read.slow_at, called + slow_after());
        }
    }
}

// Half a deadline is long for a call, unless one that took at least half as long has ended since: the
// filesystem serves many, one after the other, and another reader would only make them more. For the same
// reason only one read at a time is passed on, until it turns out that another reader is faster.
bool Reading::is_slow(Read& read, TimePoint now) const {
    if (now < read.slow_at) {
        return false;
    }
    Filesystem& filesystem = read.filesystem->second;
    const auto& ended = filesystem.last_ended;
    const bool is_usual = ended && ended->at > now - slow_after();
    const TimePoint patience_ends =
        std::max(is_usual ? *read.called + 2 * ended->took : TimePoint(),
                 is_in_office_ ? filesystem.found_slow + slow_after() : TimePoint());
    if (now < patience_ends) {
        read.slow_at = patience_ends;
        return false;
    }
    read.slow_at = TimePoint::max();
    read.found_slow = filesystem.found_slow = now;
    return true;
}

std::optional<Reading::Due> Reading::take_due(TimePoint now) {
    while (auto key = timers_.take_due(now)) {
        Read& read = reads_.at(*key);
        follow(*key, read);
        const bool is_slow_now = is_slow(read, now);
        const bool is_word_due = !is_slow_now && now >= read.next_word;
        if (is_word_due) {
            read.next_word = now + options_.deadline / words_per_deadline;
        }
        set_timer(*key, read);
        if (is_slow_now || is_word_due) {
            return Due{std::move(*key), is_slow_now ? Due::Next::is_slow : Due::Next::tell_working};
        }
    }
    return std::nullopt;
}

}  // namespace copper
