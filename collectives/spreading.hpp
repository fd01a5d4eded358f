// Sends objects to the nodes that ask, or to all nodes, and remembers what is still on its way.
//
// Sans-I/O, and belongs to the Mover.
//
// A broadcast goes down the tree of its route. Each node forwards it once, and a node that gets a second one
// of the same serial drops it.
//
// While an object is on its way down, the node below may send its interest up. To answer it would double the
// traffic of an import, in which all nodes want the same file at the same time. So a sender numbers its
// publications, an interest tells the highest number received, and a node that has sent the object with a
// higher number stays silent. There are two lanes of numbers, because MPI keeps order within a tag only, and
// a small message must be able to overtake a large body.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/push.hpp"
#include "cache/object.hpp"
#include "collectives/membership.hpp"
#include "collectives/sharing.hpp"
#include "wire/message.hpp"

namespace copper {

class Spreading {
  public:
    class Effects {
      public:
        virtual ~Effects() = default;
        virtual void send(std::span<const Rank> to, const Message& message) = 0;
        // Bytes on their way to a node, and to all nodes.
        virtual std::uint64_t backlog_bytes(Rank to) = 0;
        virtual std::uint64_t backlog_bytes() = 0;
    };

    struct Options {
        Push push = Push::automatic;
        std::size_t broadcasts_remembered_max = 1U << 17;
        // Broadcasts skip a node whose backlog is larger than this, or than what is left of the total: with n
        // slow nodes each gets 1/(n + 1) of the total (Choudhury and Hahne, IEEE/ACM Trans. Networking 6(2),
        // 1998). The node asks for objects later.
        std::uint64_t backlog_bytes_max = 16U << 20;
        std::uint64_t total_backlog_bytes_max = 48U << 20;
    };

    struct Counters {
        std::uint64_t publications_sent = 0;  // one per addressee
        std::uint64_t passed_over = 0;        // addressees of broadcasts whose backlog was full
    };

    Spreading(const Options& options, const Membership& membership, Effects& effects);

    // Records who wants the object: `origin`, several nodes, or all.
    void note_use(const ObjectKey& key, Rank origin, Interest::Wanted wanted, FetchFor why);
    // What this node's own interest should say.
    Interest::Wanted wanted(const ObjectKey& key);
    // No node but the asker wants the object.
    bool is_own(const ObjectKey& key) const;

    // This node has read the object. Sends it to the nodes that asked, and to everyone (true) if its group is
    // shared.
    bool publish(const ObjectKey& key, const ObjectPtr& object, const std::vector<Rank>& askers);
    // An object came from `from`, and these nodes have asked this node for it.
    void forward(Rank from, const Publication& publication, const std::vector<Rank>& askers);
    void answer(const ObjectKey& key, const ObjectPtr& object, const std::vector<Rank>& to);

    // A publication came from `from`, whole or damaged.
    void note_received(Rank from, Lane lane, std::uint64_t sequence);
    const Seen& received_from(Rank from) const { return received_[from.value]; }
    // The object is on its way to `to`, which has received `seen`.
    bool is_in_flight(const ObjectKey& key, Rank to, const Seen& seen) const;

    const Counters& counters() const { return counters_; }

  private:
    // The last broadcast of an object that passed here.
    struct Broadcast {
        Rank root;
        bool lasts = true;  // it belongs to the snapshot
        std::uint64_t serial = 0;
        Lane lane = Lane::eager;
        std::uint64_t sequence = 0;
        std::vector<Rank> to;
    };

    bool is_to_push(const ObjectKey& key) const;
    bool is_repeat(const Publication& publication) const;
    void broadcast(Publication publication, std::optional<Rank> from, const std::vector<Rank>& askers);
    void remember(const ObjectKey& key, Broadcast broadcast);
    std::vector<Rank> without_congested(std::vector<Rank> ranks, const std::vector<Rank>& askers);
    std::uint64_t send(Publication& publication, const std::vector<Rank>& to);

    const Options options_;
    const Membership& membership_;
    Effects& effects_;
    Sharing sharing_;
    Counters counters_;
    std::unordered_map<ObjectKey, Broadcast, ObjectKeyHash> broadcasts_;
    std::deque<const ObjectKey*> by_age_;  // the keys of broadcasts_, the first broadcast first
    std::uint64_t next_serial_ = 1;
    Seen sent_ = {};              // the last sequence, by lane
    std::vector<Seen> received_;  // by rank
};

}  // namespace copper
