// The protocol core of a node: gets wanted objects here, once, from the one node that reads them, and passes
// on what others want.
//
// Sans-I/O: a deterministic state machine. It knows no MPI, no FUSE, no threads and no wall clock; inputs are
// its methods, outputs are Effects. The daemon drives it with real ones, tests/sim drives thousands of it
// with simulated ones.
//
// How an object travels. A node that wants an object sends an Interest to its parent in the tree rooted at
// the object's reader. Each node on the way remembers who asked (equal interests merge) and passes one
// Interest on. The reader reads, and publishes to everyone down the same tree. A node that gets a second
// broadcast of the same serial drops it; one that is asked for what it has answers from its cache.
//
// Each object has a keeper, a node that lets go of others before this one (Retention::for_job). A reader that
// has published an object and holds it no longer asks the keeper before it reads again, and sends it to those
// only who ask. A node to which too much is on its way already is passed over by broadcasts: it asks for what
// it wants when it comes to it.
//
// A node that was asked and is lost (FailureDetector) is replaced: the Interest goes to the next parent. What
// else goes wrong ends in a direct read: half-way to the deadline the Interest is sent again (the tree may
// have changed), at the deadline the node reads the backing filesystem by itself, for itself and those who
// asked it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/cache.hpp"
#include "cache/trees.hpp"
#include "collectives/membership.hpp"
#include "collectives/message.hpp"
#include "collectives/push.hpp"
#include "collectives/sharing.hpp"

namespace copper {

struct MoverCounters {
    std::uint64_t interests_sent = 0;
    std::uint64_t interests_merged = 0;
    std::uint64_t interests_refused = 0;  // too many pending, too many hops, or not a cooperative path
    std::uint64_t publications_sent = 0;  // one for each addressee
    std::uint64_t duplicates = 0;         // publications that brought nothing new
    std::uint64_t got_back = 0;           // objects that the reader got from their keepers
    std::uint64_t unshared_reads = 0;     // of files that no other node wants
    std::uint64_t passed_over = 0;        // addressees of broadcasts to which too much was on its way
    std::uint64_t retries = 0;
    std::uint64_t direct_reads = 0;
    std::uint64_t deadline = 0;   // direct reads because nothing came in time
    std::uint64_t peer_lost = 0;  // nodes that were lost
    std::uint64_t corrupt = 0;    // objects that arrived damaged; read directly if they were awaited
};

// Not thread-safe: one thread calls it, and times never go back.
class Mover {
  public:
    class Effects {
      public:
        virtual ~Effects() = default;
        // The object if the node's cache holds it.
        virtual ObjectPtr find(const ObjectKey& key) = 0;
        // Into the cache; wakes local waiters.
        virtual void deliver(const ObjectKey& key, const ObjectPtr& object, Retention retention) = 0;
        // Starts a read of the backing filesystem, which ends in read_done().
        virtual void read(const ObjectKey& key) = 0;
        virtual void send(std::span<const Rank> to, const Message& message) = 0;
        // Bytes that are on their way to a node.
        virtual std::uint64_t backlog_bytes(Rank to) = 0;
    };

    struct Options {
        std::chrono::milliseconds deadline{10000};  // from a local want to the direct read
        std::size_t pending_max = 65536;
        std::size_t broadcasts_remembered_max = 1U << 17;
        std::size_t damaged_remembered_max = 1024;
        std::uint32_t hops_max = 64;
        Push push = Push::automatic;
        std::uint64_t backlog_bytes_max = 16U << 20;  // of a node that broadcasts do not pass over
    };

    Mover(Options options, const Trees& trees, Membership& membership, Effects& effects);

    // The node's cache misses this object.
    void want(const ObjectKey& key, TimePoint now);
    void receive(Rank from, const Interest& interest, TimePoint now);
    void receive(Rank from, const Publication& publication, TimePoint now);
    void receive(Rank from, const Decline& decline, TimePoint now);
    void read_done(const ObjectKey& key, const ObjectPtr& object, TimePoint now);
    // A Publication of this key arrived with a body that does not match its checksum.
    void corrupt(const ObjectKey& key);
    // Takes nodes out of the membership, or in again, and asks again for what has not come yet.
    void peers_lost(std::span<const LostNode> nodes, TimePoint now);
    void peer_regained(Rank rank, TimePoint now);
    void tick(TimePoint now);
    std::optional<TimePoint> next_deadline() const;

    // The nodes that it has asked for something and that owe an answer.
    std::set<Rank> awaited() const;

    const MoverCounters& counters() const { return counters_; }
    std::size_t pending() const { return pending_.size(); }

  private:
    enum class Reading : std::uint8_t { no, to_publish, directly };
    struct Pending {
        bool local = false;
        Reading reading = Reading::no;
        std::optional<Rank> asked;  // where the Interest went
        std::vector<Rank> askers;
        Rank origin;
        Interest::Wanted wanted = Interest::Wanted::by_one_perhaps;
        std::uint32_t attempt = 0;
        std::uint32_t hops = 0;
        TimePoint deadline;
        TimePoint due;  // of this entry's timer: half-way, then the deadline
    };
    using PendingMap = std::map<ObjectKey, Pending>;

    // The last broadcast of an object that passed here, for repeats of it and for interests that cross it.
    struct Broadcast {
        Rank root;
        bool lasts = true;  // it is of the snapshot
        std::uint64_t serial = 0;
        Lane lane = Lane::eager;
        std::uint64_t sequence = 0;
        std::vector<Rank> to;
    };

    void fetch(const ObjectKey& key, Pending& pending);
    void ask(Rank whom, const ObjectKey& key, Pending& pending, Interest::Scope scope);
    void deliver(const ObjectKey& key, const ObjectPtr& object);
    bool was_published(const ObjectKey& key) const;
    bool is_to_push(const ObjectKey& key) const;
    // The reader of a stream, asked by `origin`.
    void note_use(const ObjectKey& key, Rank origin);
    bool is_unshared(const ObjectKey& key) const;
    std::vector<Rank> without_congested(std::vector<Rank> ranks, const std::vector<Rank>& askers);
    Suspects suspects_to_tell() const;
    void read(const ObjectKey& key, Pending& pending, Reading reading);
    void read_directly(const ObjectKey& key, Pending& pending);
    void schedule(const ObjectKey& key, Pending& pending, TimePoint due);
    // Takes the entry out and returns who asked for it.
    std::vector<Rank> settle(const ObjectKey& key);
    void ask_again();
    void on_timer(const ObjectKey& key, TimePoint now);
    void broadcast(Publication publication, std::optional<Rank> from, const std::vector<Rank>& askers);
    void answer(Publication publication, const std::vector<Rank>& to);
    std::uint64_t send(Publication& publication, const std::vector<Rank>& to);
    bool is_shared(const ObjectKey& key) const;
    bool is_repeat(const Publication& publication) const;
    bool is_in_flight(const ObjectKey& key, Rank to, const Seen& seen) const;

    const Options options_;
    const Trees& trees_;
    Membership& membership_;
    Effects& effects_;
    Sharing sharing_;
    MoverCounters counters_;

    TimePoint now_;  // of the last input
    PendingMap pending_;
    std::set<std::pair<TimePoint, ObjectKey>> timers_;
    std::unordered_map<ObjectKey, Broadcast, ObjectKeyHash> broadcasts_;
    // Their broadcast arrived damaged: whoever sent it must be told not to wait for its arrival.
    std::set<ObjectKey> damaged_;
    Seen sent_ = {};              // the last sequence, by lane
    std::vector<Seen> received_;  // by rank
    std::uint64_t next_serial_ = 1;
};

}  // namespace copper
