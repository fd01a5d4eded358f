// The protocol core of a node: gets each wanted object once, from the node that reads it, and passes on the
// objects that other nodes want.
//
//   want, Interest ──► Waiting ──Interest──► next node on the way up ... ──► the reader's Waiting
//                                                                                   │
//   deliver ◄── Spreading ◄──Publication── next node on the way down ... ◄── Reading ┘
//
// The Mover only connects its three parts: Waiting (who waits for what, and until when), Reading (what this
// node reads) and Spreading (what goes to whom). Membership says who the reader is.
//
// If a read is too slow, or its result may be the fault of the reader's own mount, the reader passes the
// interest on to the next reader, with its result. If that one finds the same, all nodes believe it. If it
// finds something better, the first reader resigns its office for a while.
//
// Sans-I/O: a deterministic state machine without MPI, FUSE, threads and wall clock. Inputs are its methods,
// outputs are Effects. The daemon drives it with real Effects, tests/sim drives thousands with simulated
// ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/trees.hpp"
#include "cache/cache.hpp"
#include "collectives/first_version.hpp"
#include "collectives/membership.hpp"
#include "collectives/reading.hpp"
#include "collectives/spreading.hpp"
#include "collectives/waiting.hpp"
#include "wire/message.hpp"

namespace copper {

struct MoverCounters {
    std::uint64_t interests_sent = 0;
    std::uint64_t interests_merged = 0;
    std::uint64_t interests_refused = 0;  // too many pending, too many hops, or not a cooperative path
    std::uint64_t publications_sent = 0;  // one per addressee
    std::uint64_t duplicates = 0;         // publications that brought nothing new
    std::uint64_t unshared_reads = 0;     // of files that no other node wants
    std::uint64_t passed_over = 0;        // addressees of broadcasts whose backlog was full
    std::uint64_t retries = 0;
    std::uint64_t passed_on = 0;     // reads that another reader took over
    std::uint64_t resignations = 0;  // of this node's office
    std::uint64_t direct_reads = 0;  // because nothing arrived in time, or nothing to believe
    std::uint64_t corrupt = 0;       // objects that arrived damaged, and were requested again
};

// Not thread-safe: one thread calls it, with times that never go back.
class Mover {
  public:
    class Effects : public Spreading::Effects {
      public:
        // The object if the node's cache holds it.
        virtual ObjectPtr find(const ObjectKey& key) = 0;
        // Cache::current
        virtual ObjectKey current(ObjectKey key) const { return key; }
        // Puts it into the cache; wakes local waiters.
        virtual void deliver(const ObjectKey& key, const ObjectPtr& object) = 0;
        // What was delivered went to all nodes: programs of this one will use it, if none does yet.
        virtual void is_for_all(const ObjectKey&, const ObjectPtr&) {}
        // Begins a read of the backing filesystem, at most Reading::Options::reads_max at a time.
        // read_done() ends it.
        virtual void read(const ObjectKey& key) = 0;
        // When its latest call of the filesystem began. REQUIRES: it has begun and not ended
        virtual TimePoint latest_call(const ObjectKey& key) = 0;
        // The directory where the filesystem of this path begins.
        virtual std::string filesystem_of(const std::string& path) = 0;
        // As BackingStore::is_serial.
        virtual bool is_serial(const std::string& /*filesystem*/) { return false; }
    };

    struct Options {
        std::chrono::milliseconds deadline{10000};  // from a want, or the last Working, to the direct read
        std::uint32_t hops_max = 64;
        // How long a reader that cannot read stays out of office.
        std::chrono::milliseconds resigned_for{60000};
        Waiting::Options waiting = {};  // `deadline` is taken from above
        Reading::Options reading = {};  // the same
        Spreading::Options spreading = {};
    };

    Mover(Options options, const Trees& trees, Membership& membership, Effects& effects);

    // The node's cache misses this object.
    void want(const ObjectKey& key, FetchFor why, TimePoint now);
    void receive(Rank from, const Interest& interest, TimePoint now);
    void receive(Rank from, const Publication& publication, TimePoint now);
    void receive(Rank from, const Decline& decline, TimePoint now);
    void receive(Rank from, const Working& working, TimePoint now);
    void read_done(const ObjectKey& key, const ObjectPtr& read, TimePoint now);
    // Fewer bytes are on their way to other nodes.
    void backlog_shrank(TimePoint now);
    // A Publication arrived that does not match its checksum.
    void receive_damaged(Rank from, const ObjectKey& key, Lane lane, std::uint64_t sequence, TimePoint now);
    // The next tick repeats requests to nodes that are no longer on the way, once for all changes until then.
    void membership_changed(TimePoint now);
    void tick(TimePoint now);
    std::optional<TimePoint> next_deadline() const;

    // This node has asked `whom` for the object.
    bool awaits(const ObjectKey& key, Rank whom) const {
        const Wait* wait = waiting_.find(key);
        return wait != nullptr && wait->asked() == whom;
    }
    // The nodes that owe an answer.
    std::set<Rank> awaited() const { return waiting_.awaited(); }

    MoverCounters counters() const;
    std::size_t pending() const { return waiting_.size(); }
    // Filesystems that answer no reads of this node, and since when.
    std::map<std::string, TimePoint> silent(TimePoint now) const { return reading_.silent(now); }
    std::uint64_t reads_queued() const { return reading_.queued(); }
    std::uint64_t reads_in_flight() const { return reading_.in_flight(); }

  private:
    bool is_cooperative(const ObjectKey& key) const;
    bool is_held_for_others(const ObjectKey& key);
    Route route(const ObjectKey& key) const;
    std::optional<Rank> next_hop(const ObjectKey& key, const Wait& wait) const;
    std::optional<Rank> other_way(const ObjectKey& key, const Wait& wait) const;
    std::chrono::microseconds early_by(const ObjectKey& key) const;
    const Finding* own_finding(const Wait& wait) const { return wait.opinions.of(membership_.self()); }

    void fetch(const ObjectKey& key, Wait& wait);
    void urge(const ObjectKey& key, const Wait& wait);
    bool is_urged(Rank from, const Interest& interest);
    std::vector<Rank> settle(const ObjectKey& key);
    enum class Asks : std::uint8_t { for_the_object, for_haste };
    void ask(Rank whom, const ObjectKey& key, const Wait& wait, Asks what = Asks::for_the_object);
    void review_ways();
    void review_way(const ObjectKey& key, Wait& wait);
    void ask_again(const ObjectKey& key, Wait& wait);
    void read(const ObjectKey& key, Wait& wait, Reading::Purpose purpose,
              std::chrono::milliseconds spent = std::chrono::milliseconds(0));
    void begin_reads();
    void read_directly(const ObjectKey& key, Wait& wait);
    void read_next_directly();
    void leave_turn(const ObjectKey& key, FetchFor why);
    bool pass_on(const ObjectKey& key, Wait& wait, int error);
    void finish_in_office(const ObjectKey& key, Wait& wait, const ObjectPtr& object);
    void note_finding(const ObjectKey& key, Wait& wait, const Finding& found);
    void keep_in_doubt(const ObjectKey& key, const ObjectPtr& object);
    void decline(std::span<const Rank> to, const ObjectKey& key, const Object& doubtful);
    void publish(const ObjectKey& key, const ObjectPtr& object);
    void deliver(const ObjectKey& key, const ObjectPtr& object);
    FindObject current_objects() const;
    void judge_own_finding(const ObjectKey& key, const Wait& wait, const Object& object);
    void tell_working(std::span<const Rank> to, const ObjectKey& key);
    void on_due(const Waiting::Due& due);
    void on_due(const Reading::Due& due);

    const Options options_;
    const Trees& trees_;
    Membership& membership_;
    Effects& effects_;
    Waiting waiting_;
    Reading reading_;
    Spreading spreading_;
    std::map<std::string, std::set<std::pair<FetchFor, ObjectKey>>> in_turn_;  // for a direct read
    bool has_membership_changed_ = false;                                      // since the last tick
    std::optional<ObjectKey> next_to_review_;  // the first object whose way may have changed
    std::optional<TimePoint> back_in_office_;
    TimePoint moved_{};  // when an object that somebody waited for came last
    MoverCounters counters_;

    TimePoint now_;  // of the last input
};

}  // namespace copper
