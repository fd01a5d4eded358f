// The reads of this node from the backing filesystem: in its office, for the job; or for itself, because
// nothing arrived in time. A read is queued, and later begins.
//
// Sans-I/O, part of the Mover. Says which reads begin, when to tell the waiting nodes (Working), and when a
// read is so slow that another reader should try. A queue is not slowness: the clock of a read starts when
// the read begins. Only if none begins or ends for half a deadline, the first one in the queue is slow, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "base/clock.hpp"
#include "cache/cache.hpp"
#include "cache/object.hpp"
#include "collectives/read_queue.hpp"
#include "collectives/timers.hpp"
#include "wire/message.hpp"

namespace copper {

class Reading {
  public:
    enum class Purpose : std::uint8_t {
        in_office,  // for the job: the object is published
        unshared,   // only this node wants it, or each node reads such objects itself
        direct,     // the object did not arrive in time
    };
    struct Options {
        std::chrono::milliseconds deadline{10000};
        std::size_t direct_reads_max = 4;  // at a time
        ReadQueue::Options queue = {};
    };
    explicit Reading(Options options) : options_(options), queue_(options.queue) {}

    // Queues the read. `spent`: how long others have tried before. REQUIRES: !has(key)
    void add(const ObjectKey& key, Purpose purpose, FetchFor why, std::chrono::milliseconds spent,
             TimePoint now);
    // Queued or begun.
    bool has(const ObjectKey& key) const { return reads_.contains(key); }
    bool is_queued(const ObjectKey& key) const { return queue_.has(key); }
    // Of a queued read.
    std::optional<Purpose> queued_for(const ObjectKey& key) const {
        return queue_.has(key) ? std::optional(reads_.at(key).purpose) : std::nullopt;
    }
    // A program waits for it by now. No effect unless it is queued.
    void promote(const ObjectKey& key);
    // Calls `begin` for each read that may begin. `backlog_bytes`: on their way to other nodes.
    void begin_reads(std::uint64_t backlog_bytes, TimePoint now,
                     const std::function<void(const ObjectKey&)>& begin);
    // Nothing if it was not being read.
    std::optional<Purpose> end(const ObjectKey& key, TimePoint now);
    // Removes a queued read, which nobody waits for any more. Nothing if it is not queued.
    std::optional<Purpose> drop(const ObjectKey& key);

    std::chrono::milliseconds spent(const ObjectKey& key, TimePoint now) const;
    // It was slow in the queue, which has moved since.
    bool has_recovered(const ObjectKey& key) const;
    // What to tell those who wait. REQUIRES: has(key)
    Working working(const ObjectKey& key, TimePoint now) const;

    bool has_room_for_direct() const { return direct_reads_ < options_.direct_reads_max; }
    std::uint64_t queued() const { return queue_.size(); }
    std::uint64_t in_flight() const { return queue_.in_flight(); }

    struct Due {
        ObjectKey key;
        enum class Next : std::uint8_t { tell_working, is_slow } next;
    };
    std::optional<Due> take_due(TimePoint now);
    std::optional<TimePoint> next_deadline() const { return earlier(timers_.next(), queue_slow_at()); }

  private:
    // Working messages per deadline: two may be lost, and the third arrives in time.
    static constexpr int words_per_deadline = 4;

    struct Read {
        Purpose purpose;
        ReadQueue::ReadFor whom;
        TimePoint asked;                   // when the first node asked for it
        std::optional<TimePoint> began{};  // not while it is queued
        TimePoint next_word;
        TimePoint slow_at = TimePoint::max();
        std::optional<TimePoint> slow_in_queue{};
    };
    // A read that ended as it should have.
    struct Ended {
        TimePoint at;
        TimePoint::duration took;
    };

    void set_timer(const ObjectKey& key, const Read& read) {
        timers_.set(key, std::min(read.next_word, read.slow_at));
    }
    bool is_slow(Read& read, TimePoint now) const;
    std::optional<TimePoint> queue_slow_at() const;
    Purpose remove(std::map<ObjectKey, Read>::iterator entry);

    const Options options_;
    ReadQueue queue_;
    std::map<ObjectKey, Read> reads_;
    Timers timers_;
    std::size_t direct_reads_ = 0;
    TimePoint moved_{};       // when a read began or ended last
    TimePoint found_slow_{};  // when the queue was last found to be slow
    std::optional<Ended> last_ended_;
};

}  // namespace copper
