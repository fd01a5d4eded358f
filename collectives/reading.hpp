// The reads of this node from the backing filesystem: in its office, for the job; or for itself, because
// nothing arrived in time. A read is queued, and later begins.
//
// Each filesystem has a queue and threads of its own, so one that hangs delays no other. A filesystem is
// named by the directory where it begins.
//
// Sans-I/O, part of the Mover. Says which reads begin, when to tell the waiting nodes (Working), and when a
// read is so slow that another reader should try. A queue is not slowness: the clock of a read starts when
// its latest call to the filesystem began.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

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
        direct,     // the object did not arrive in time, or what did cannot be believed
    };
    struct Options {
        std::chrono::milliseconds deadline{10000};
        std::size_t direct_reads_max = 4;  // at a time, of a filesystem
        std::uint64_t reads_max = 512;     // at a time, of all filesystems: one for each reader thread
        ReadQueue::Options queue = {};     // of each filesystem
    };
    // When the latest call of a read began.
    using LatestCall = std::function<TimePoint(const ObjectKey&)>;
    // Whether a filesystem looks up one name at a time in a directory.
    using IsSerial = std::function<bool(const std::string& filesystem)>;
    Reading(
        Options options, LatestCall latest_call,
        IsSerial is_serial = [](const std::string&) { return false; })
        : options_(options), latest_call_(std::move(latest_call)), is_serial_(std::move(is_serial)) {}

    // Queues the read. `spent`: how long others have tried before. REQUIRES: !has(key)
    void add(const ObjectKey& key, const std::string& filesystem, Purpose purpose, FetchFor why,
             std::chrono::milliseconds spent, TimePoint now);
    // Queued or begun.
    bool has(const ObjectKey& key) const { return reads_.contains(key); }
    // Of a queued read.
    std::optional<Purpose> queued_for(const ObjectKey& key) const;
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
    // This read is slow, and so was the other reader that has just answered.
    bool is_slow_elsewhere(const ObjectKey& key, TimePoint now) const;
    // Another reader is faster: what is slow by now should be passed on at once, and not one by one.
    void resign(TimePoint now);
    void resume() { is_in_office_ = true; }
    // What to tell those who wait. REQUIRES: has(key)
    Working working(const ObjectKey& key, TimePoint now) const;

    bool has_room_for_direct(const std::string& filesystem) const;
    // Filesystems that have answered none of their reads for half a deadline, and since when.
    std::map<std::string, TimePoint> silent(TimePoint now) const;
    std::uint64_t queued() const;
    std::uint64_t in_flight() const { return in_flight_; }

    struct Due {
        ObjectKey key;
        enum class Next : std::uint8_t { tell_working, is_slow } next;
    };
    std::optional<Due> take_due(TimePoint now);
    std::optional<TimePoint> next_deadline() const { return timers_.next(); }

  private:
    // Working messages per deadline: two may be lost, and the third arrives in time.
    static constexpr int words_per_deadline = 4;

    // A read that ended as it should have.
    struct Ended {
        TimePoint at;
        TimePoint::duration took;  // its latest call
    };
    // With reads that are queued or begun.
    struct Filesystem {
        ReadQueue queue;
        std::size_t direct_reads = 0;
        TimePoint answered;  // when a call was last seen to end; before: when the first read began
        std::optional<Ended> last_ended{};
        TimePoint found_slow{};  // when a read was last found to be slow
    };
    using Filesystems = std::map<std::string, Filesystem>;
    struct Read {
        Filesystems::iterator filesystem;
        Purpose purpose;
        ReadQueue::ReadFor whom;
        TimePoint asked;                    // when the first node asked for it
        std::optional<TimePoint> called{};  // when its latest call began; not while it is queued
        TimePoint next_word;
        TimePoint slow_at = TimePoint::max();
        std::optional<TimePoint> found_slow{};
    };

    TimePoint::duration slow_after() const { return options_.deadline / 2; }
    void set_timer(const ObjectKey& key, const Read& read) {
        timers_.set(key, std::min(read.next_word, read.slow_at));
    }
    void follow(const ObjectKey& key, Read& read);
    bool is_slow(Read& read, TimePoint now) const;
    Purpose remove(std::map<ObjectKey, Read>::iterator entry);

    const Options options_;
    const LatestCall latest_call_;
    const IsSerial is_serial_;
    Filesystems filesystems_;
    std::map<ObjectKey, Read> reads_;
    Timers timers_;
    std::uint64_t in_flight_ = 0;
    bool is_in_office_ = true;
};

}  // namespace copper
