// A node's whole protocol: objects, roll calls, and membership.
//
// Sans-I/O: messages, wants, finished reads and the time go in, Effects come out. The daemon's progress loop
// and the simulator drive it in the same way.
#pragma once

#include <optional>
#include <string>

#include "base/trees.hpp"
#include "collectives/failure_detector.hpp"
#include "collectives/membership.hpp"
#include "collectives/mover.hpp"
#include "collectives/roll_call.hpp"
#include "wire/wire.hpp"

namespace copper {

// Not thread-safe: one thread calls it, with times that never go back.
class Protocol {
  public:
    class Effects : public Mover::Effects, public RollCall::Effects {
      public:
        void send(std::span<const Rank> to, const Message& message) override = 0;
        // For the log; also about this node itself.
        virtual void state_changed(Rank rank, NodeState state) = 0;
    };

    struct Options {
        Membership::Options membership;
        Mover::Options mover;
        FailureDetector::Options failure_detector = {};  // `self` and `nodes` are taken from `membership`
    };

    // Both must outlive this object.
    Protocol(Options options, const Trees& trees, Effects& effects);

    // The node's cache misses this object.
    void want(const ObjectKey& key, FetchFor why, TimePoint now);
    void read_done(const ObjectKey& key, const ObjectPtr& object, TimePoint now);
    // Fewer bytes are on their way to other nodes: reads that waited for that may begin.
    void backlog_shrank(TimePoint now);
    void receive(Rank from, const Message& message, TimePoint now);
    void receive_damaged(Rank from, const Damaged& damaged, TimePoint now);
    void answered(const Call& call, std::string text) { roll_call_.answered(call, std::move(text)); }
    // Asks all nodes; Effects::finished() gets the answers.
    std::uint64_t call(std::string verb, std::string argument, std::chrono::milliseconds patience,
                       Call::Silence silence, TimePoint now);
    // Asks these nodes alone.
    std::uint64_t ask(const std::vector<Rank>& whom, std::string verb, std::string argument,
                      std::chrono::milliseconds patience, TimePoint now);
    // This node's link to another one is broken for good.
    void cut(Rank rank, TimePoint now);
    // This node ends. Tells its neighbours in the trees (36 at most), which it returns; the others hear it
    // from them. If it told all nodes, a scheduler that ends all at once would cause N^2 messages.
    std::vector<Rank> leave(TimePoint now);

    void tick(TimePoint now);
    // Call tick() at this time, at the latest.
    std::optional<TimePoint> next_deadline() const;

    const Membership& membership() const { return membership_; }
    std::uint64_t nodes_lost() const { return nodes_lost_; }
    const Mover& mover() const { return mover_; }
    const RollCall& roll_call() const { return roll_call_; }

  private:
    void handle(Rank from, const Interest& interest);
    void handle(Rank from, const Publication& publication);
    void handle(Rank from, const Decline& decline) { mover_.receive(from, decline, now_); }
    void handle(Rank from, const Working& working) { mover_.receive(from, working, now_); }
    void handle(Rank from, const Call& call) { roll_call_.receive(from, call, now_); }
    void handle(Rank from, const Answer& answer) { roll_call_.receive(from, answer); }
    void handle(Rank from, const Ping& ping);
    void handle(Rank from, const Pong& pong);
    bool is_answer(Rank from, const Message& message) const;

    void send_news(Rank to);
    void ping(Rank rank);
    void let_contradict(Rank rank);
    void heed(Rank from, const std::vector<News>& news);
    void ping_accused(std::span<const Rank> changed);
    void look_after_peers();
    void note_changes(std::span<const Rank> changed);
    void note_own_state();

    Effects& effects_;
    Membership membership_;
    Mover mover_;
    RollCall roll_call_;
    FailureDetector failure_detector_;
    NodeState own_state_ = NodeState::serving;
    std::uint64_t nodes_lost_ = 0;
    TimePoint next_look_{};
    TimePoint now_{};  // of the last input
};

}  // namespace copper
