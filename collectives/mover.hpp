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
// A node that was asked and is lost (FailureDetector) is replaced: the Interest goes to the next parent.
//
// Who reads says so, four times a deadline, to those who asked, and they to those who asked them (Working);
// each such word begins the deadline anew. So nobody turns to a filesystem that is slow for its reader too.
// A reader whose read takes longer than usual, or ends in what may be its own node's trouble, has the next
// reader of the tree read too, and then one more: the first good answer is published, and an error once two
// nodes have met it. For a while it then hands on what else is asked of it.
//
// A node that hears nothing asks two other ways (its grandparent; the tree of the next reader), and before
// its deadline ends reads the backing filesystem by itself, for itself and those who asked it, which it tells
// them. Nodes near the reader do so first, so that those below them need not; each reads few objects at a
// time so.
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
#include "collectives/usual_time.hpp"

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
    std::uint64_t handed_on = 0;  // times that another node was asked to read instead of this one
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
        // Starts a read of the backing filesystem, which ends in read_done(). One for others may wait until
        // less is on its way to them.
        enum class ReadFor : std::uint8_t { others, itself };
        virtual void read(const ObjectKey& key, ReadFor whom) = 0;
        virtual void send(std::span<const Rank> to, const Message& message) = 0;
        // Bytes that are on their way to a node.
        virtual std::uint64_t backlog_bytes(Rank to) = 0;
        virtual std::uint64_t backlog_bytes() = 0;  // to all
    };

    struct Options {
        std::chrono::milliseconds deadline{10000};  // from a local want, or a Working, to the direct read
        // Beyond so many deadlines after the want, Working does not put it off any more.
        int deadlines_max = 12;
        // At a time. After two deadlines without a word an object is read nevertheless.
        std::size_t direct_reads_max = 4;
        // How often this node has begun anew. What it was sent before did not survive.
        std::uint32_t incarnation = 0;
        std::size_t pending_max = 65536;
        std::size_t broadcasts_remembered_max = 1U << 17;
        std::size_t damaged_remembered_max = 1024;
        std::uint32_t hops_max = 64;
        Push push = Push::automatic;
        // Of a node that broadcasts do not pass over: so much, or what is left of so much to all nodes
        // together. Then n slow nodes leave 1/(n + 1) of it to the others (Choudhury and Hahne, IEEE/ACM
        // Trans. Networking 6(2), 1998).
        std::uint64_t backlog_bytes_max = 16U << 20;
        std::uint64_t total_backlog_bytes_max = 48U << 20;
        // A read for others waits while so many bytes are being read for them or on their way to them.
        std::uint64_t bytes_for_others_max = 32U << 20;
    };

    Mover(Options options, const Trees& trees, Membership& membership, Effects& effects);

    // The node's cache misses this object.
    void want(const ObjectKey& key, TimePoint now);
    void receive(Rank from, const Interest& interest, TimePoint now);
    void receive(Rank from, const Publication& publication, TimePoint now);
    void receive(Rank from, const Decline& decline, TimePoint now);
    void receive(Rank from, const Working& working, TimePoint now);
    void read_done(const ObjectKey& key, const ObjectPtr& object, TimePoint now);
    // A Publication of this key arrived with a body that does not match its checksum.
    void corrupt(const ObjectKey& key);
    // Takes nodes out of the membership, or in again, and asks again for what has not come yet.
    void peers_lost(std::span<const LostNode> nodes, TimePoint now);
    void peer_regained(Rank rank, TimePoint heard, TimePoint now);
    void tick(TimePoint now);
    std::optional<TimePoint> next_deadline() const;

    // The nodes that it has asked for something and that owe an answer.
    std::set<Rank> awaited() const;

    const MoverCounters& counters() const { return counters_; }
    std::size_t pending() const { return pending_.size(); }

  private:
    enum class Reading : std::uint8_t { no, to_publish, for_reader, directly };
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
        TimePoint latest;  // that Working puts the deadline off to
        TimePoint due;     // of this entry's timer
        // Of a node that waits, since the last news:
        std::uint32_t tries = 0;
        std::chrono::milliseconds told{-1};  // Working::spent
        // Of a node that reads, or has another one read:
        TimePoint word_at;                 // when to send the next Working
        TimePoint began;                   // since when it has been read, here or elsewhere
        std::optional<TimePoint> read_at;  // when this node began
        std::size_t helpers = 0;           // further readers that were asked
        TimePoint help_at;                 // when the next one is
        ObjectPtr doubtful;                // what a node has read, if another one may read better
        Rank reader;                       // of Reading::for_reader
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
    void deliver_here(const ObjectKey& key, const ObjectPtr& object);
    bool was_published(const ObjectKey& key) const;
    bool is_judged(const ObjectKey& key) const;  // by Sharing
    bool is_to_push(const ObjectKey& key) const;
    // The reader, asked by `origin`.
    void note_use(const ObjectKey& key, Rank origin);
    bool is_unshared(const ObjectKey& key) const;
    std::vector<Rank> without_congested(std::vector<Rank> ranks, const std::vector<Rank>& askers);
    // The reader at work: it reads, or has another node read in its stead.
    static bool is_to_publish(const Pending& pending) {
        return pending.reading == Reading::to_publish || pending.helpers > 0 || pending.doubtful != nullptr;
    }
    static bool is_at_it(const Pending& pending) {
        return pending.reading != Reading::no || is_to_publish(pending);
    }
    void read(const ObjectKey& key, Pending& pending, Reading reading);
    void read_directly(const ObjectKey& key, Pending& pending);
    void read_directly_in_turn(const ObjectKey& key, Pending& pending);
    void start_waiting_direct_reads();
    void publish(const ObjectKey& key, const ObjectPtr& object);
    bool hand_on(const ObjectKey& key, Pending& pending);
    void begin_work(Pending& pending);
    void go_on_at(const ObjectKey& key, Pending& pending, TimePoint help_at);
    void go_on(const ObjectKey& key, Pending& pending);
    void note_doubtful(const ObjectKey& key, Pending& pending, const ObjectPtr& object);
    void give_up_helper(const ObjectKey& key, Pending& pending);
    void finish_for_reader(const ObjectKey& key, Pending& pending, const ObjectPtr& object);
    bool is_doubtful(const ObjectKey& key, const Object& object) const;
    std::chrono::microseconds slow_after() const;
    void tell_working(std::span<const Rank> to, const ObjectKey& key, const Pending& pending);
    void begin_deadline(Pending& pending);
    std::optional<Rank> other_way(const ObjectKey& key, const Pending& pending, Rank reader) const;
    // The end of waiting: of the direct read, or of the entry if it is only others who want the object.
    TimePoint last_call(const ObjectKey& key, const Pending& pending) const;
    void wait(const ObjectKey& key, Pending& pending);
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
    std::set<ObjectKey> direct_reads_;        // in flight
    std::set<ObjectKey> direct_reads_to_be_;  // that wait for one of these to end; some need it no more
    UsualTime reading_time_;
    TimePoint hands_on_until_;
    Seen sent_ = {};              // the last sequence, by lane
    std::vector<Seen> received_;  // by rank
    std::uint64_t next_serial_;
};

}  // namespace copper
