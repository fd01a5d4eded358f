// One node's cache: objects by key, and one in-flight entry for each object that is being fetched.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <tbb/concurrent_hash_map.h>

#include "base/clock.hpp"
#include "cache/eviction.hpp"
#include "cache/generations.hpp"
#include "cache/object.hpp"

namespace copper {

// Why an object is fetched. Readers go through what programs wait for first.
enum class FetchFor : std::uint8_t {
    demand,    // a program waits for it
    guess,     // a program of this node may ask for it soon
    everyone,  // programs of all nodes will ask for it: a profile says so, or a person (prefetch)
};

// Whether somebody foresaw that a program would ask for an object.
enum class Foresight : std::uint8_t {
    foreseen,  // the cache has it, or fetches it already
    unforeseen,
};

// Thread-safe. Calls waiters and the fetch function without holding a lock. A hit calls its waiter in the
// caller's thread, a miss in the thread that delivers.
//
// Programs ask for an object as it is now: get(), use() and foresight() take its key without a generation. To
// nodes, an object before a refresh and the one after it are two: find(), deliver() and replace() take the
// key that current() makes, or that came with a message.
class Cache {
  public:
    using Waiter = std::function<void(const ObjectPtr&)>;
    using Fetch = std::function<void(const ObjectKey&, FetchFor)>;

    struct Options {
        std::uint64_t budget_bytes = 0;
        std::uint32_t readers = 1;  // that read a large file together
        Clock clock = std::chrono::steady_clock::now;
        std::function<void(const ObjectKey&)> on_demand = nullptr;  // a program asks for this object
    };

    struct Statistics {
        std::uint64_t objects = 0;
        std::uint64_t bytes = 0;
        std::uint64_t budget_bytes = 0;
        std::uint64_t hits = 0;
        std::uint64_t misses = 0;
        std::uint64_t evictions = 0;  // evicted, or too large for the budget
        std::uint64_t waiting = 0;    // gets of demand that are not answered yet
    };

    // Calls `fetch` once for each missing object, however many callers ask, with the reason of the first one;
    // and once more if demand joins what is fetched as a guess. deliver() ends the fetch.
    Cache(Options options, Fetch fetch);

    // Programs of this node see that anew. False: this refresh has been here before.
    bool refresh(const Refreshed& refreshed) { return generations_.add(refreshed); }

    // Drops what no program of this node asks for any more since the last refresh, and what was found of
    // files that were not of the version asked for: they may be by now. Takes a step for each object.
    void drop_outdated();

    // The key of this object as it is now.
    ObjectKey current(ObjectKey key) const {
        key.generation = generations_.of(key);
        return key;
    }

    // Calls `waiter` with the object, once.
    void get(const ObjectKey& key, Waiter waiter, FetchFor why = FetchFor::demand);

    // The object if the cache has it, to pass it on: with the life that it has left. Counts as a use, but as
    // neither a hit nor a miss. Fetches nothing.
    ObjectPtr find(const ObjectKey& key);

    // The same for a program that gets it without asking, and whose kernel then keeps it: nothing that has a
    // lifetime. Nobody can see whether the program looks at it, so a profile keeps it as long as programs
    // list its directory.
    ObjectPtr use(const ObjectKey& key);

    // Call it before get(). Not a use.
    Foresight foresight(const ObjectKey& key);

    // Keeps the object, evicts others if needed, and wakes all waiters. Does not keep an object larger than
    // the budget.
    void deliver(const ObjectKey& key, const ObjectPtr& object, Copy copy = Copy::of_another);

    // Replaces `object`, if it is still kept, by an equal object in other memory.
    void replace(const ObjectKey& key, const ObjectPtr& object, ObjectPtr equal);

    // How many extents of this kind of a file to fetch ahead, so that all who read them have one to read,
    // given the budget and what other fetches have in flight.
    std::uint32_t read_ahead_extents(ObjectKind kind) const;

    Statistics statistics() const;

  private:
    // Either an object or, while it is in flight, its waiters.
    struct Slot {
        KeptPtr kept;
        std::vector<Waiter> waiters;
        FetchFor why = FetchFor::demand;  // demand if any of the waiters is
        std::uint32_t demands = 0;        // of the waiters
    };
    struct HashCompare {
        static std::size_t hash(const ObjectKey& key) { return hash_of(key); }
        static bool equal(const ObjectKey& one, const ObjectKey& other) { return one == other; }
    };
    // An accessor locks one slot. TBB's own allocator would keep the memory of what is evicted.
    using Slots = tbb::concurrent_hash_map<ObjectKey, Slot, HashCompare,
                                           std::allocator<std::pair<const ObjectKey, Slot>>>;

    // All memory allocated for an object and its entry.
    static std::uint64_t footprint(const ObjectKey& key, const Object& object);
    bool is_current(const Slot& slot) const;
    bool may_be_outdated(const ObjectKey& key, const Object& object) const;
    bool forget(const KeptPtr& kept);

    const Options options_;
    const Fetch fetch_;
    Slots slots_;
    Eviction eviction_;
    Generations generations_;
    std::atomic<std::uint64_t> hits_ = 0, misses_ = 0, waiting_ = 0;
    std::atomic<std::uint64_t> extents_in_flight_ = 0;
};

}  // namespace copper
