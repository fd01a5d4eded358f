// Asks every node something and joins the answers over the tree: statistics, status, stop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.hpp"
#include "collectives/membership.hpp"
#include "wire/message.hpp"

namespace copper {

// Sans-I/O like the Mover, and on the same thread.
class RollCall {
  public:
    class Effects {
      public:
        virtual ~Effects() = default;
        virtual void send(std::span<const Rank> to, const Message& message) = 0;
        // This node's answer to a call. Nothing: answered() brings it later.
        virtual std::optional<std::string> answer(const Call& call) = 0;
        // One text that says what these answers say together, for verbs that want no more: it goes up the
        // tree instead of them. Nothing: the origin wants the answer of each node.
        virtual std::optional<std::string> joined(const std::string& /*verb*/,
                                                  const std::string& /*argument*/,
                                                  const std::vector<Answer::Part>& /*parts*/) {
            return std::nullopt;
        }
        // All answers to a call() of this node, sorted by rank. Nodes without an answer are missing.
        virtual void finished(std::uint64_t id, std::vector<Answer::Part> parts) = 0;
    };

    RollCall(const Membership& membership, Effects& effects) : membership_(membership), effects_(effects) {}

    // Asks all nodes, including this one. After half of `patience` at the latest, goes around nodes that have
    // not answered, level by level: it asks those below them. Ends after `patience` with the answers it has.
    // Returns the id for finished().
    std::uint64_t call(std::string verb, std::string argument, std::chrono::milliseconds patience,
                       Call::Silence silence, TimePoint now);
    // This node's answer to a call that it had none for.
    void answered(const Call& call, std::string text);
    // Asks these nodes alone.
    std::uint64_t ask(const std::vector<Rank>& whom, std::string verb, std::string argument,
                      std::chrono::milliseconds patience, TimePoint now);

    void receive(Rank from, const Call& call, TimePoint now);
    void receive(Rank from, const Answer& answer);
    // Nobody waits for this node's answer any more.
    void peer_lost(Rank rank);
    void tick(TimePoint now);
    std::optional<TimePoint> next_deadline() const;

    // The nodes that owe an answer and must not be silent.
    std::set<Rank> awaited() const;

  private:
    static constexpr std::size_t calls_max = 1024;  // passing through this node at a time
    // Nodes that the origin asks besides its children. At the start of a job, when all may be late, it must
    // not talk to all: it calls again.
    static constexpr std::size_t asked_around_max = 48;

    using CallName = std::pair<Rank, std::uint64_t>;  // origin, id
    // A call of this node.
    struct Own {
        std::set<Rank> missing;  // all nodes without an answer
        std::set<Rank> asked;    // by this node itself
        std::size_t asked_max;
        std::optional<TimePoint> next_round;  // when to go around those that are silent; nothing: never
        std::chrono::milliseconds between_rounds;
    };
    struct Pending {
        Call call;
        std::variant<Own, Rank> answer_to;  // a node above
        TimePoint deadline;
        std::map<Rank, Answer::Part> parts;
        std::set<Rank> heard;  // whose answers are in `parts`
        std::set<Rank> below;  // asked, and owe the joined answer of their subtree; or this node, its own
        std::map<Rank, std::uint32_t> answers;  // received from them

        Own* own() { return std::get_if<Own>(&answer_to); }
        const Own* own() const { return std::get_if<Own>(&answer_to); }
    };
    void ask_below(Pending& pending);
    void answer(Pending& pending);
    void add(Pending& pending, const Answer::Part& part);
    std::optional<Answer::Part> join(const Call& call, const std::vector<Answer::Part>& parts);
    void go_on(std::map<CallName, Pending>::iterator entry);
    Pending& begin(std::string verb, std::string argument, std::chrono::milliseconds patience, TimePoint now);
    void go_around(Pending& pending, Own& own);
    void finish(std::map<CallName, Pending>::iterator pending);

    const Membership& membership_;
    Effects& effects_;
    std::map<CallName, Pending> pending_;
    std::uint64_t next_id_ = 1;
};

}  // namespace copper
