// Chooses the objects that leave a cache when its budget is spent.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/clock.hpp"
#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// Of an object that a node keeps.
enum class Copy : std::uint8_t {
    of_reader,   // if it leaves the cache, the next node that wants it waits for the filesystem
    of_another,  // its reader may have it, too
};

class Kept;
using KeptPtr = std::shared_ptr<Kept>;

// An object in a cache, and its place in the queues of an Eviction. Public members need no lock unless noted.
class Kept {
  public:
    Kept(ObjectKey key, ObjectPtr object, std::uint64_t bytes, std::optional<TimePoint> expires,
         Copy copy = Copy::of_another)
        : key(std::move(key)), object(std::move(object)), bytes(bytes), expires(expires), copy(copy) {}

    // May race with the Eviction's own change of the count and get lost. The count is only a hint.
    void use() {
        if (const auto uses = uses_.load(std::memory_order_relaxed); uses < uses_max) {
            uses_.store(uses + 1, std::memory_order_relaxed);
        }
    }

    const ObjectKey key;
    ObjectPtr object;           // guarded by the cache's lock of this key
    const std::uint64_t bytes;  // all it takes from the budget
    const std::optional<TimePoint> expires;
    const Copy copy;

  private:
    friend class Eviction;
    static constexpr unsigned uses_max = 3;

    std::atomic<unsigned> uses_ = 0;

    // Guarded by the Eviction's lock.
    enum class Place : std::uint8_t { arriving, small_queue, main_queue, gone };
    Place place_ = Place::arriving;
    bool is_new_ = true;                     // of a reader's copy: in its first round of the main queue
    std::list<KeptPtr>::iterator position_;  // if in a queue
    std::uint64_t walk_ = 0;                 // the last one that has shown it, or that it came too late for
    std::multimap<TimePoint, KeptPtr>::iterator expiring_;  // if in a queue and `expires`
};

// S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023), by
// bytes. A new object enters the small queue. At the end of that queue it leaves the cache, or moves to the
// main queue if it was used more than once. In the main queue, one that was used since its last turn gets
// another round. So one-pass data evicts only other one-pass data. The hash of an object that left the small
// queue stays behind as a ghost: if the object comes back soon, it enters the main queue directly. Expired
// objects leave first.
//
// Unlike there, an object enters a full main queue only in the place of others that have had no use since
// their last turn. It looks at those in front, twice as many bytes as it has; if that makes no room, it
// leaves. So of data that is a little larger than the cache and read again and again (a file that nodes read
// one after the other), most stays, instead of each object leaving shortly before it is used again.
//
// A reader's copy enters the main queue directly, because if it leaves, the filesystem must be asked again.
// To other readers' copies, it counts as used once; to what was really used, it does not. What only comes
// back soon takes no place of a reader's copy. So the readers together keep a file that is larger than the
// budget of each of them.
//
// Thread-safe. Knows objects and budget only: the caller removes evicted objects from the cache.
class Eviction {
  public:
    struct Usage {
        std::uint64_t objects = 0;
        std::uint64_t bytes = 0;
        std::uint64_t evictions = 0;  // objects that had not expired
    };

    explicit Eviction(std::uint64_t budget_bytes);

    // Counts an object that was put into the cache, once. Returns the objects that must leave: possibly the
    // new one, if it exceeds the budget.
    [[nodiscard]] std::vector<KeptPtr> admit(const KeptPtr& kept, TimePoint now);

    // The cache removed this object itself. Harmless for one that has left already or was never admitted.
    void remove(const KeptPtr& taken_out);

    // Shows all objects that were admitted before and stay until it is their turn, once. Others go on
    // meanwhile, and so may `show`; a second call waits.
    void for_each(const std::function<void(const KeptPtr&)>& show);

    Usage usage() const;

    // How many bytes can arrive before the first of them leaves, if nobody uses them.
    std::uint64_t room_for_new() const;

  private:
    using Objects = std::list<KeptPtr>;
    struct Queue {
        Objects objects;  // the next one to leave is in front
        std::uint64_t bytes = 0;
    };
    struct Queues {
        Queue small_queue;
        Queue main_queue;
        std::multimap<TimePoint, KeptPtr> expiring;
        std::deque<std::uint64_t> ghosts;  // hashes of keys, the oldest in front
        std::unordered_set<std::uint64_t> ghosts_by_hash;
        std::uint64_t evictions = 0;
        std::uint64_t walks = 0;                // by for_each(), through one queue after the other
        std::optional<Objects::iterator> walk;  // where it goes on

        std::uint64_t objects() const { return small_queue.objects.size() + main_queue.objects.size(); }
        std::uint64_t bytes() const { return small_queue.bytes + main_queue.bytes; }
        Queue& of(const Kept& kept);
    };

    // What an admission has done so far.
    struct Admission {
        std::vector<KeptPtr> leaving;
        int moves = 0;  // of objects within the queues
    };
    void free_one(Queues& queues, TimePoint now, Admission& admission) const;
    bool make_way(Queues& queues, const Kept& kept, Admission& admission) const;
    static void let_leave(Queues& queues, Kept& kept, Admission& admission);
    static void move_to_end(Queues& queues, Kept& kept, Kept::Place place);
    static KeptPtr take_out(Queues& queues, Kept& kept);
    static void walk_past(Queues& queues, const Kept& kept);
    static void remember(Queues& queues, const ObjectKey& key);

    const std::uint64_t budget_bytes_;
    const std::uint64_t main_bytes_max_;
    mutable Guarded<Queues> queues_;
    std::mutex walking_;
};

}  // namespace copper
