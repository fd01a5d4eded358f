// The reads of this node from the backing filesystem: in its office, for the job; or for itself, because
// nothing arrived in time.
//
// Sans-I/O, part of the Mover. Says when to tell the waiting nodes (Working), and when a read is so slow that
// another reader should try.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/clock.hpp"
#include "cache/object.hpp"
#include "collectives/timers.hpp"

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
    };
    explicit Reading(Options options) : options_(options) {}

    // `spent`: how long others have tried before. REQUIRES: !has(key)
    void begin(const ObjectKey& key, Purpose purpose, std::chrono::milliseconds spent, TimePoint now);
    bool has(const ObjectKey& key) const { return reads_.contains(key); }
    // Nothing if it was not being read.
    std::optional<Purpose> end(const ObjectKey& key);
    std::chrono::milliseconds spent(const ObjectKey& key, TimePoint now) const;

    bool has_room_for_direct() const { return direct_reads_ < options_.direct_reads_max; }

    struct Due {
        ObjectKey key;
        enum class Next : std::uint8_t { tell_working, is_slow } next;
    };
    std::optional<Due> take_due(TimePoint now);
    std::optional<TimePoint> next_deadline() const { return timers_.next(); }
    // The read counts as slow only after the same time again.
    void excuse(const ObjectKey& key, TimePoint now);

  private:
    // Working messages per deadline: two may be lost, and the third arrives in time.
    static constexpr int words_per_deadline = 4;

    struct Read {
        Purpose purpose;
        TimePoint began;
        TimePoint next_word;
        TimePoint slow_at;
    };
    void set_timer(const ObjectKey& key, const Read& read) {
        timers_.set(key, std::min(read.next_word, read.slow_at));
    }

    const Options options_;
    std::map<ObjectKey, Read> reads_;
    Timers timers_;
    std::size_t direct_reads_ = 0;
};

}  // namespace copper
