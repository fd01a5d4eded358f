// One node's cache: objects by key, with one in-flight entry for each object that is being fetched.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/guarded.hpp"
#include "cache/eviction.hpp"
#include "cache/object.hpp"

namespace copper {

using Clock = std::function<TimePoint()>;

// Thread-safe. Waiters and the fetch function run without any lock held: a hit's waiter in the caller's
// thread, a miss's waiter in the thread that delivers.
class Cache {
  public:
    using Waiter = std::function<void(const ObjectPtr&)>;
    using Fetch = std::function<void(const ObjectKey&)>;

    struct Options {
        std::uint64_t budget_bytes = 0;
        Clock clock = std::chrono::steady_clock::now;
    };

    struct Statistics {
        std::uint64_t objects = 0;
        std::uint64_t bytes = 0;
        std::uint64_t budget_bytes = 0;
        std::uint64_t hits = 0;
        std::uint64_t misses = 0;
        std::uint64_t evictions = 0;  // pushed out, or too large for the budget
    };

    // `fetch` is called once for each object that is missing, however many ask; deliver() ends it.
    Cache(Options options, Fetch fetch);

    // Calls `waiter` with the object, once.
    void get(const ObjectKey& key, Waiter waiter);

    // The object if it is here, to pass it on: a use, but neither a hit nor a miss; fetches nothing.
    ObjectPtr find(const ObjectKey& key);

    // Keeps the object, for which others may have to leave (one larger than the budget is not kept), and
    // wakes all who wait for it.
    void deliver(const ObjectKey& key, const ObjectPtr& object);

    // Keeps an equal object instead, which lies elsewhere in memory, if it still keeps `object`.
    void replace(const ObjectKey& key, const ObjectPtr& object, ObjectPtr equal);

    // Forgets what is kept of `path` and everything below it. What is in flight stays in flight.
    void drop(std::string_view path);

    // How much of a file may be fetched ahead of its reading: what the budget, and what is in flight for
    // other readings, leave room for.
    std::uint32_t read_ahead_extents() const;

    Statistics statistics() const;

  private:
    // Either an object or, while it is in flight, those who wait for it.
    struct Slot {
        KeptPtr kept;
        std::vector<Waiter> waiters;
    };
    using Shard = std::unordered_map<ObjectKey, Slot, ObjectKeyHash>;
    static constexpr std::size_t shard_count = 64;

    Guarded<Shard>& shard_of(const ObjectKey& key);
    // Everything that is allocated for an object and for keeping it.
    static std::uint64_t footprint(const ObjectKey& key, const Object& object);
    bool is_current(const Slot& slot) const;
    void forget(const KeptPtr& kept);

    const Options options_;
    const Fetch fetch_;
    std::array<Guarded<Shard>, shard_count> shards_;
    Eviction eviction_;
    std::atomic<std::uint64_t> hits_ = 0, misses_ = 0;
    std::atomic<std::uint64_t> extents_in_flight_ = 0;
};

}  // namespace copper
