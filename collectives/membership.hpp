// Which nodes are alive, as this node sees it, and what follows from that: the tree of each root and the
// reader of each file tree. Nodes whose views differ for a while compute different trees; the Mover's rules
// hold all the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/cache.hpp"
#include "collectives/message.hpp"
#include "collectives/rank.hpp"
#include "collectives/topology.hpp"

namespace copper {

// A node that is held to be lost.
struct LostNode {
    Rank rank;
    // From then on whoever found it lost has waited in vain for a word of it; it may be there all the same.
    // Nothing: it is gone for good, because it said so, or because this node's link to it is broken.
    std::optional<TimePoint> silent_since = std::nullopt;
};

// Not thread-safe: belongs to the thread of the Mover.
class Membership {
  public:
    struct Options {
        std::uint32_t size = 1;
        Rank self;
        std::size_t arity = 4;
        std::size_t readers = 16;  // how many nodes may be readers at a time. REQUIRES: >= 1, as does arity
    };
    explicit Membership(Options options);

    Rank self() const { return options_.self; }
    std::uint32_t size() const { return options_.size; }
    const std::vector<Rank>& alive() const { return alive_; }
    const std::vector<LostNode>& lost() const { return lost_; }  // in the order of their loss
    std::vector<Rank> suspects() const;                          // those of them that may come back
    const std::vector<Rank>& readers() const { return readers_; }
    bool is_alive(Rank rank) const;

    // REQUIRES: not self. Idempotent; a suspect can become one that is gone for good.
    void lose(const LostNode& node);
    void lose(Rank rank) { lose(LostNode{.rank = rank}); }
    // A suspect is there after all, and was heard then. Nothing happens if it is none.
    void regain(Rank rank, TimePoint heard);

    // The number of this node's view: grows when the view changes.
    std::uint64_t epoch() const { return epoch_; }
    // Somebody's view has this number: the next one of this node is a later one.
    void note_epoch(std::uint64_t epoch) { epoch_ = std::max(epoch_, epoch); }
    // That a node which was held to be lost is back: when it was heard, and the view that took it in again.
    struct Return {
        Rank rank;
        TimePoint heard;
        std::uint64_t epoch = 0;
    };
    // The last one, if it is remembered.
    std::optional<Return> return_of(Rank rank) const;

    // What to tell others.
    View view(TimePoint now) const;

    // The reader of a file tree. The nodes, in an order drawn by lot, are dealt out to `readers` offices; an
    // office is held by the first live node dealt to it. File trees spread over the offices that are held by
    // highest-random-weight ("rendezvous") hashing (Thaler and Ravishankar, IEEE/ACM Trans. Networking 6(1),
    // 1998). So it follows from the live nodes alone, and when a reader is lost only its file trees move: to
    // its successor in office or, if it has none, to the other readers.
    Rank reader_of(std::string_view file_tree) const;

    // The reader of a file tree, and who would follow it, one after the other, if all before were lost; at
    // most `count` of them.
    std::vector<Rank> readers_of(std::string_view file_tree, std::size_t count) const;

    // The node that keeps an object for the others, by the object's hash: chosen among all nodes, so that the
    // loss of one moves no other's objects.
    Rank keeper_of(std::uint64_t hash) const;

    // In the tree rooted at `root` over the live nodes, at a turn (TreeShape). REQUIRES: root is alive.
    std::optional<Rank> parent(Rank root, std::size_t turn = 0) const;
    std::optional<Rank> grandparent(Rank root, std::size_t turn = 0) const;
    std::vector<Rank> children(Rank root, std::size_t turn = 0) const;
    std::size_t depth(Rank root, std::size_t turn = 0) const;  // 0 for the root

  private:
    std::size_t index_of(Rank rank) const;
    std::optional<Rank> parent_of(Rank node, Rank root, std::size_t turn) const;
    TreeShape shape_of(Rank root, std::size_t turn) const;
    void elect_readers();

    const Options options_;
    std::uint64_t epoch_ = 0;
    std::vector<Return> returned_;  // the latest ones, in their order
    std::vector<Rank> candidates_;  // all nodes, lost ones too, in the order in which they come into office
    std::vector<Rank> alive_;       // ascending
    std::vector<LostNode> lost_;
    std::vector<std::optional<Rank>> holders_;  // by office
    std::vector<Rank> readers_;                 // ascending
};

}  // namespace copper
