// Finds out whether the nodes that this node waits for are still alive.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <vector>

#include "base/clock.hpp"
#include "fabric/rank.hpp"

namespace copper {

// Asks only when it matters. A node that owes an answer and has said nothing for a while is pinged; if it
// answers no ping, it is suspected. It has to answer even if the data arrived another way; otherwise the next
// request would wait for it too. (This is the direct probe of SWIM, without its rounds: a job in which nobody
// waits exchanges no messages.) The suspicion may be wrong: suspects are pinged now and then, and a suspect
// that hears of it contradicts (Membership).
//
// A node that contradicts, and still answers no ping, lives: only the link to it or from it is broken. To
// suspect it again would never end. So this node goes around the link until a ping is answered, and tells
// nobody: others reach the node.
//
// The cost per node does not grow with the job: a node that answers is pinged ever more rarely, and of all
// nodes that suspect one only a few ping it.
//
// Sans-I/O like the Mover, and belongs to the same thread.
class FailureDetector {
  public:
    struct Options {
        Rank self = {};
        std::uint32_t nodes = 1;
        // At first: from the last message of an awaited node to a ping.
        std::chrono::milliseconds patience{300};
        std::chrono::milliseconds patience_max{2400};  // each answered ping doubles the patience
        std::chrono::milliseconds answer_time{350};    // from a ping to the next one, or to the verdict
        int pings_max = 2;
        std::chrono::milliseconds retrial{5000};  // between pings of a suspect, or of a node out of reach
        // So many nodes ping a suspect at a time, each time others; so many nodes out of reach are pinged.
        std::uint32_t retrials_max = 16;
        std::chrono::milliseconds interval{50};  // between two looks, while anything is awaited
    };
    explicit FailureDetector(Options options) : options_(options) {}

    // An answer arrived, of any kind: this node reaches `from`, and the other way round.
    void heard(Rank from, TimePoint now);
    // A node has something to contradict. Whether to ping it: not while it may still answer an earlier one of
    // these pings, or each word of a long queue would make another one.
    bool may_ping(Rank rank, TimePoint now);
    // It was the answer to a ping. True if `from` was out of reach until now.
    bool answered_ping(Rank from);
    // It has answered no ping since it was last found to be silent.
    bool is_accused(Rank rank) const { return accused_.contains(rank); }

    struct Verdict {
        std::vector<Rank> to_ping;
        std::vector<Rank> silent;
        std::vector<Rank> out_of_reach;  // silent again
    };
    // Call it about every `interval`. `suspects`: nodes that may come back.
    Verdict look(const std::set<Rank>& awaited, const std::vector<Rank>& suspects, TimePoint now);

    const Options& options() const { return options_; }

  private:
    void retry(const std::vector<Rank>& suspects, std::vector<Rank>& to_ping);

    struct Suspicion {
        TimePoint due;
        std::chrono::milliseconds patience;
        int pings = 0;
    };

    const Options options_;
    std::map<Rank, Suspicion> watched_;     // nodes that are awaited, or must answer a ping
    std::map<Rank, TimePoint> unanswered_;  // after may_ping(), and how long to wait
    std::set<Rank> accused_;
    std::set<Rank> out_of_reach_;
    TimePoint next_retrial_;
    std::uint32_t retrials_ = 0;
};

}  // namespace copper
