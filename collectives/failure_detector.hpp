// Finds out whether nodes that something is waited for are still there.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "cache/cache.hpp"
#include "collectives/membership.hpp"

namespace copper {

// Asks only when it matters: a node from which something is awaited, and which has said nothing for a while,
// is pinged; if it does not answer, again and again, it is held to be lost, even if by then all that was
// awaited has been got elsewhere: who comes next would wait for it again. (The direct probe of SWIM, Das,
// Gupta and Motivala, DSN 2002, without its rounds: a job that has lost no node and in which nobody waits
// exchanges no messages.) It may be wrong about a node that is slow; lost nodes are pinged now and then, and
// whatever such a node says proves it, also to those who are told of it.
//
// What that costs a node does not grow with the job: a node that has answered is asked more and more rarely,
// and of all nodes that suspect one only a few ping it.
//
// Sans-I/O like the Mover, and belongs to the same thread.
class FailureDetector {
  public:
    struct Options {
        Rank self = {};
        std::uint32_t nodes = 1;
        std::chrono::milliseconds patience{300};  // at first: from the last word of an awaited node to a ping
        std::chrono::milliseconds patience_max{2400};  // each answered ping doubles it
        std::chrono::milliseconds answer_time{350};    // from a ping to the next one, or to the verdict
        int pings_max = 2;
        std::chrono::milliseconds retrial{5000};  // between pings of a lost node
        std::uint32_t retrials_max = 64;          // nodes that ping it at a time, each time others
        std::chrono::milliseconds interval{50};   // between two looks, while anything is awaited
    };
    explicit FailureDetector(Options options) : options_(options) {}

    // A message came, of any kind.
    void heard(Rank from, TimePoint now);

    bool was_heard_since(Rank rank, TimePoint since) const;

    // What to make of the view of another node, which `membership` has taken note of the epoch of.
    std::vector<LostNode> lost(const View& view, const Membership& membership, TimePoint now) const;
    static std::vector<Membership::Return> returned(const View& view, const Membership& membership,
                                                    TimePoint now);

    struct Verdict {
        std::vector<Rank> to_ping;
        std::vector<LostNode> lost;  // silent since their first ping
    };
    // To be called about every `interval`. `suspects`: the nodes that may come back.
    Verdict look(const std::set<Rank>& awaited, const std::vector<Rank>& suspects, TimePoint now);

    const Options& options() const { return options_; }

  private:
    struct Suspicion {
        TimePoint due;
        std::chrono::milliseconds patience;
        TimePoint first_ping = {};
        int pings = 0;
    };

    const Options options_;
    std::map<Rank, Suspicion> watched_;  // who is awaited, and who is to answer a ping
    std::map<Rank, TimePoint> heard_;
    TimePoint next_retrial_;
    std::uint32_t retrials_ = 0;
};

}  // namespace copper
