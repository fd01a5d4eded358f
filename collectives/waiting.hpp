// The objects that this node waits for, for whom, and until when.
//
// Sans-I/O, part of the Mover. Each awaited object has one entry. Its state says whether this node has asked
// another one or reads the object itself.
//
// A node whose own processes wait tries another way if it hears nothing from the node it asked for a third of
// the deadline, and again after two thirds. Shortly before the deadline, it reads the object directly. The
// nodes in between pass each attempt on once, and never ask again by themselves. (If they did, and messages
// waited longer than the deadline, each old interest would make several new ones at each node: the queue
// would grow by itself, for ever.) Each Working (message.hpp) starts the deadline again, but not beyond
// `deadlines_max` deadlines after the filesystem last made progress. So however long a queue is, nobody reads
// directly while it moves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "cache/cache.hpp"
#include "collectives/opinions.hpp"
#include "collectives/timers.hpp"
#include "wire/message.hpp"

namespace copper {

// Another node was asked for the object.
struct Asked {
    Rank whom;
    Rank reader;                         // who held the office then
    std::uint32_t ways_tried = 0;        // since the last sign of work
    std::chrono::milliseconds spent{0};  // the last Working::spent received
};
// This node reads the object (Reading knows more).
struct ReadHere {};
// This node will read the object directly when its turn comes.
struct InTurn {};

struct Wait {
    bool is_local = false;     // processes of this node want it
    std::vector<Rank> askers;  // other nodes that want it
    Rank origin;               // one of those nodes, or this one
    Interest::Wanted wanted = Interest::Wanted::by_one_perhaps;
    FetchFor why = FetchFor::demand;  // demand if anybody waits for it
    std::uint32_t attempt = 0;        // above 0: asked for in vain
    std::uint32_t hops = 0;           // of the interest, up to here
    Opinions opinions;                // of readers, perhaps including this node, that could not read it
    TimePoint deadline;
    TimePoint deadline_max;              // Working cannot put the deadline off beyond this, if nothing moves
    std::chrono::microseconds early{0};  // how long before the deadline this node reads directly
    std::variant<Asked, ReadHere, InTurn> state = ReadHere{};

    std::optional<Rank> asked() const {
        const Asked* asked = std::get_if<Asked>(&state);
        return asked != nullptr ? std::optional(asked->whom) : std::nullopt;
    }
    std::size_t nodes() const { return askers.size() + (is_local ? 1 : 0); }
};

class Waiting {
  public:
    struct Options {
        std::chrono::milliseconds deadline{10000};
        int deadlines_max = 12;
        // When it is full, only objects that programs of this node want are added.
        std::size_t entries_max = 65536;
    };
    explicit Waiting(Options options) : options_(options) {}

    // The entry's address is valid until settle().
    Wait* find(const ObjectKey& key);
    const Wait* find(const ObjectKey& key) const { return const_cast<Waiting*>(this)->find(key); }
    bool has_room() const { return waits_.size() < options_.entries_max; }
    // urges: demand joins what was a guess until now. again: asked for in vain, once more than before.
    enum class Joined : std::uint8_t { first, later, urges, again };
    // Processes of this node want the object now. Nothing if they already did.
    std::optional<Joined> add_local(const ObjectKey& key, FetchFor why, Rank self,
                                    std::chrono::microseconds early, TimePoint now);
    Joined add_asker(const ObjectKey& key, Rank from, const Interest& interest, TimePoint now);
    // This node turns from its own read to another node.
    void begin_again(const ObjectKey& key, TimePoint now) { begin_deadline(waits_.at(key), now); }

    void ask(const ObjectKey& key, Rank whom, Rank reader, TimePoint now);
    void read_here(const ObjectKey& key);
    // Due again at `latest`.
    void wait_for_turn(const ObjectKey& key, TimePoint latest);
    // True if this is news for the askers. `trust`: little, if this node has read the object itself and only
    // wants to know whether another one finds the same.
    enum class Trust : std::uint8_t { full, little };
    bool note_work(const Working& working, Trust trust, TimePoint now);
    // The object is here: ends the entry and returns the askers.
    std::vector<Rank> settle(const ObjectKey& key);
    void forget_askers(const std::function<bool(Rank)>& is_gone);

    struct Due {
        ObjectKey key;
        enum class Next : std::uint8_t { ask_another_way, read_directly, give_up } next;
    };
    std::optional<Due> take_due(TimePoint now);
    std::optional<TimePoint> next_deadline() const { return timers_.next(); }

    std::set<Rank> awaited() const;  // the nodes that were asked
    // The first object, or the first one after `key`.
    std::optional<ObjectKey> first() const { return key_of(waits_.begin()); }
    std::optional<ObjectKey> next(const ObjectKey& key) const { return key_of(waits_.upper_bound(key)); }
    std::size_t size() const { return waits_.size(); }

  private:
    std::optional<ObjectKey> key_of(std::map<ObjectKey, Wait>::const_iterator entry) const {
        return entry != waits_.end() ? std::optional(entry->first) : std::nullopt;
    }
    void begin_deadline(Wait& wait, TimePoint now) const;
    void set_timer(const ObjectKey& key, const Wait& wait, TimePoint now);
    void set_state(Wait& wait, decltype(Wait::state) state);
    void forget_asked(const Wait& wait);

    const Options options_;
    std::map<ObjectKey, Wait> waits_;
    std::map<Rank, std::size_t> asked_;  // for how many objects
    Timers timers_;
};

}  // namespace copper
