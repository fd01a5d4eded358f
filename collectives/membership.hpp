// Which nodes are alive and which of them are in office, as this node knows it; and what follows from that:
// the reader of each file tree, and the way up and down each tree.
//
// States and incarnations are those of SWIM (Das, Gupta and Motivala, DSN 2002). There is one rule for what
// is news: of two reports about a node, the one with the higher incarnation counts; of two with the same
// incarnation, the one whose state comes later in NodeState. Only the node itself raises its incarnation: to
// contradict a suspicion, to resign its office, and to take it again. So reports may arrive in any order, any
// number of times, and all nodes that have heard the same agree.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "cache/cache.hpp"
#include "collectives/topology.hpp"
#include "fabric/rank.hpp"
#include "wire/message.hpp"

namespace copper {

// How an object travels: from `reader` to the root of a tree, and down that tree. An interest goes the same
// way up.
struct Route {
    Rank reader;
    std::uint32_t tree = 0;
    bool operator==(const Route&) const = default;
};

// Not thread-safe: belongs to the thread of the Mover.
class Membership {
  public:
    struct Options {
        std::uint32_t size = 1;
        Rank self;
        // Small objects reach all nodes soonest with 4 to 8, whole extents with 2 to 4
        // (docs/notebook/2026-11-21.md). REQUIRES: >= 1
        std::size_t arity = 4;
        std::size_t readers = 16;  // number of offices, at most one per node. REQUIRES: >= 1
    };
    explicit Membership(Options options);

    Rank self() const { return options_.self; }
    std::uint32_t size() const { return options_.size; }
    NodeState state(Rank rank) const { return members_[rank.value].state; }
    // Neither suspect nor dead.
    bool is_alive(Rank rank) const { return state(rank) <= NodeState::resigned; }
    const std::vector<Rank>& alive() const { return alive_; }  // ascending
    std::vector<Rank> suspects() const;                        // ascending

    enum class Heard : std::uint8_t {
        nothing_new,
        news,
        denied,  // it was wrong about this node, which has raised its incarnation: tell the sender
    };
    Heard note(const News& news);
    // This node found that `rank` does not answer. REQUIRES: not self.
    void suspect(Rank rank);
    // This node cannot reach `rank`, whatever others report, until mend(). REQUIRES: not self.
    void cut(Rank rank);
    // It reaches a node again that it has cut, and that was alive then. False if it has not cut it.
    bool mend(Rank rank);
    // This node stops reading for others for a while.
    void resign() { change_own(NodeState::resigned); }
    void resume() { change_own(NodeState::serving); }
    // This node ends.
    void leave() { change_own(NodeState::dead); }

    // The latest changes, to tell others.
    std::vector<News> news() const;
    // The news for `to`: includes what this node knows about the two, so that a wrong suspicion ends.
    std::vector<News> news_for(Rank to) const;
    // Grows with each change, and goes back with mend(). Nodes with the same knowledge have the same number.
    std::uint64_t epoch() const { return epoch_; }

    // The readers: the first live node of each office that has not resigned. An office has a seat, the root
    // of a tree if there are enough trees. The ranks from this seat to the next one succeed each other in the
    // office. Ascending.
    std::vector<Rank> readers() const;
    // Rendezvous hashing (highest random weight; Thaler and Ravishankar, IEEE/ACM Trans. Networking 6(1),
    // 1998) spreads file trees over the offices that have a holder, so a loss moves only the file trees of
    // the lost reader. The stripes of a large file go to all offices in turn, so that each has had as much of
    // it as that of the file tree; those of an office that has no holder are spread in the same way. (In
    // turn, because hashes alone give one of four readers a third of 2 GiB.) The reader of an extent follows
    // from its number and the path alone: nobody needs to know the file's size.
    Route route(const ObjectKey& key) const;
    // This node is the reader of the object.
    bool reads(const ObjectKey& key) const { return route(key).reader == self(); }
    // The reader to try if those in `tried` cannot read. One that has resigned is better than none. Nothing
    // if no other node is left.
    std::optional<Rank> next_reader(const ObjectKey& key, std::span<const Rank> tried) const;

    // The next node on the way up: the nearest live one above this node in the tree; above the root, the
    // reader. Nothing at the reader. So when a node dies, its children go to its parent, and no other node
    // changes.
    std::optional<Rank> parent(const Route& route) const { return parent_of(self(), route); }
    std::optional<Rank> parent_of(Rank rank, const Route& route) const;
    std::optional<Rank> grandparent(const Route& route) const;
    std::vector<Rank> children(const Route& route) const;
    std::vector<Rank> neighbours(const Route& route) const;  // parent and children
    std::size_t depth(const Route& route) const;             // hops from the reader; 0 for the reader

  private:
    struct Member {
        std::uint32_t incarnation = 0;
        NodeState state = NodeState::serving;
        bool is_cut = false;
    };
    struct Office {
        std::uint32_t seat = 0;
        std::uint32_t end = 0;  // one past the last rank of its succession
        std::uint32_t tree = 0;
        std::optional<Rank> holder;
    };

    void add_news(std::vector<News>& told, Rank rank) const;
    void change(Rank rank, Member member);
    void change_own(NodeState state);
    void fill(Office& office) const;
    const Office& office_of(const ObjectKey& key) const;
    TreeShape shape(std::uint32_t tree) const;
    void add_live(std::vector<Rank>& ranks, const TreeShape& shape, Rank rank, Rank reader) const;

    const Options options_;
    std::vector<Member> members_;  // by rank
    std::vector<Rank> alive_;
    std::vector<Office> offices_;
    std::deque<Rank> changed_;  // the latest last, each once
    std::uint64_t epoch_ = 0;
};

}  // namespace copper
