#include "collectives/roll_call.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <variant>

#include "wire/wire.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr auto suspicious = Call::Silence::is_suspicious;

// N nodes; messages arrive in the order in which they were sent, all at one moment of a clock that is set by
// hand.
class Network {
  public:
    struct Node final : RollCall::Effects {
        Node(Network& owner, std::uint32_t size, std::uint32_t rank, std::size_t arity)
            : network(owner),
              membership({.size = size, .self = Rank{rank}, .arity = arity, .readers = 1}),
              roll_call(membership, *this) {}

        void send(std::span<const Rank> to, const Message& message) override {
            for (const Rank rank : to) {
                network.messages_.push_back({membership.self(), rank, message});
                peers.insert(rank);
            }
        }
        std::optional<std::string> answer(const Call& call) override {
            ++answered;
            if (answers_later) {
                open = call;
                return std::nullopt;
            }
            if (call.verb == "sum") {
                return "1";
            }
            if (text_bytes != 0) {
                return std::string(text_bytes, static_cast<char>('a' + membership.self().value % 26));
            }
            return call.verb + ' ' + call.argument + ' ' + std::to_string(membership.self().value);
        }
        std::optional<std::string> joined(const std::string& verb, const std::string&,
                                          const std::vector<Answer::Part>& parts) override {
            if (verb != "sum") {
                return std::nullopt;
            }
            std::uint64_t sum = 0;
            for (const auto& part : parts) {
                sum += std::stoull(part.text);
            }
            return std::to_string(sum);
        }
        void finished(std::uint64_t id, std::vector<Answer::Part> parts) override {
            finished_ids.push_back(id);
            result = std::move(parts);
        }

        Network& network;
        Membership membership;
        RollCall roll_call;
        std::set<Rank> peers;  // to which it has sent something
        int answered = 0;
        std::size_t text_bytes = 0;  // of each answer; 0: the words below
        bool dead = false;
        bool answers_later = false;
        std::optional<Call> open;  // that it owes an answer
        std::vector<std::uint64_t> finished_ids;
        std::vector<Answer::Part> result;
    };
    struct InFlight {
        Rank from;
        Rank to;
        Message message;
    };

    Network(std::uint32_t size, std::size_t arity) {
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            nodes_.push_back(std::make_unique<Node>(*this, size, rank, arity));
        }
    }

    Node& operator[](std::size_t rank) { return *nodes_[rank]; }
    TimePoint now() const { return now_; }
    std::deque<InFlight>& messages() { return messages_; }

    void deliver_all() {
        while (!messages_.empty()) {
            const InFlight next = std::move(messages_.front());
            messages_.pop_front();
            deliver(next);
        }
    }

    void deliver(const InFlight& next) {
        Node& node = *nodes_[next.to.value];
        if (node.dead) {
            return;
        }
        if (const auto* call = std::get_if<Call>(&next.message)) {
            node.roll_call.receive(next.from, *call, now_);
        } else {
            node.roll_call.receive(next.from, std::get<Answer>(next.message));
        }
    }

    // Goes from deadline to deadline until nothing is left to wait for.
    void run() {
        deliver_all();
        while (const auto next = next_deadline()) {
            now_ = std::max(now_, *next);
            for (auto& node : nodes_) {
                if (!node->dead) {
                    node->roll_call.tick(now_);
                }
            }
            deliver_all();
        }
    }

    std::optional<TimePoint> next_deadline() const {
        std::optional<TimePoint> next;
        for (const auto& node : nodes_) {
            const auto due = node->dead ? std::nullopt : node->roll_call.next_deadline();
            if (due) {
                next = next ? std::min(*next, *due) : *due;
            }
        }
        return next;
    }

  private:
    std::vector<std::unique_ptr<Node>> nodes_;
    std::deque<InFlight> messages_;
    TimePoint now_{1h};
};

std::vector<std::uint32_t> ranks_of(const std::vector<Answer::Part>& parts) {
    std::vector<std::uint32_t> ranks;
    for (const auto& part : parts) {
        ranks.push_back(part.rank.value);
    }
    return ranks;
}

TEST(RollCall, AllAnswerOnceInOrderAndAtOnce) {
    for (std::uint32_t size = 1; size <= 50; ++size) {
        for (const std::size_t arity : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{16}}) {
            const std::uint32_t origin = size / 2;
            Network network(size, arity);
            const TimePoint before = network.now();
            // Every node gives those below it a part of its own time: even a chain of 50 has some left.
            const auto id = network[origin].roll_call.call("ping", "x", 3h, suspicious, before);
            EXPECT_TRUE(network[origin].finished_ids.empty()) << "finished from within call()";
            network.run();
            ASSERT_EQ(network[origin].finished_ids, std::vector{id});
            ASSERT_EQ(network[origin].result.size(), size);
            for (std::uint32_t rank = 0; rank < size; ++rank) {
                EXPECT_EQ(network[origin].result[rank].rank, Rank{rank});
                EXPECT_EQ(network[origin].result[rank].text, "ping x " + std::to_string(rank));
                EXPECT_EQ(network[rank].answered, 1);
            }
            EXPECT_EQ(network.now(), before) << "waited for nothing";
        }
    }
}

TEST(RollCall, ANodeMayAnswerLater) {
    constexpr std::uint32_t nodes = 20;
    for (const std::uint32_t origin : {0U, 7U}) {
        for (std::uint32_t late = 0; late < nodes; ++late) {
            Network network(nodes, 2);
            network[late].answers_later = true;
            const auto id = network[origin].roll_call.call("ping", "x", 10s, suspicious, network.now());
            network.deliver_all();
            EXPECT_TRUE(network[origin].finished_ids.empty());
            EXPECT_FALSE(network[late].roll_call.awaited().contains(Rank{late}));
            network[late].roll_call.answered(*network[late].open, "late");
            network.deliver_all();
            ASSERT_EQ(network[origin].finished_ids, std::vector{id});
            ASSERT_EQ(network[origin].result.size(), nodes);
            EXPECT_EQ(network[origin].result[late].text, "late");
            network.run();
            EXPECT_EQ(network.now(), TimePoint(1h)) << "nobody had to wait";
        }
    }
}

// The origin goes around the node, and asks it once more.
TEST(RollCall, ANodeMayAnswerMuchLaterOrNever) {
    constexpr std::uint32_t nodes = 20, origin = 7;
    for (std::uint32_t late = 0; late < nodes; ++late) {
        Network network(nodes, 2);
        network[late].answers_later = true;
        network[origin].roll_call.call("ping", "x", 10s, suspicious, network.now());
        network.run();
        EXPECT_EQ(network.now(), TimePoint(1h + 10s));
        EXPECT_EQ(network[origin].result.size(), nodes - 1U);
        network[late].roll_call.answered(*network[late].open, "too late");
        network.run();
        EXPECT_EQ(network[origin].finished_ids.size(), 1U);
    }
}

// As of 64 nodes with much to say. Lanes overtake each other, so the messages of one node arrive in any
// order.
TEST(RollCall, NoAnswerIsTooLargeForAMessageAndAllArrive) {
    constexpr std::uint32_t nodes = 64;
    Network network(nodes, 4);
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
        network[rank].text_bytes = rank % 7 == 0 ? answer_text_bytes_max : 100000 + rank;
    }
    network[5].roll_call.call("stats", "", 10s, suspicious, network.now());
    std::size_t answers = 0;
    while (!network.messages().empty()) {
        const auto next = network.messages().back();  // the last one first
        network.messages().pop_back();
        if (std::holds_alternative<Answer>(next.message)) {
            ++answers;
            EXPECT_LE(encode(next.message).body.size, body_bytes_max);
        }
        network.deliver(next);
    }
    EXPECT_GT(answers, nodes - 1U);
    network.run();
    EXPECT_EQ(network.now(), TimePoint(1h)) << "nobody had to wait";
    ASSERT_EQ(network[5].result.size(), nodes);
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
        EXPECT_EQ(network[5].result[rank].text,
                  std::string(network[rank].text_bytes, static_cast<char>('a' + rank % 26)));
    }
}

// Whatever is late, the origin talks to few: it goes around a late node level by level.
TEST(RollCall, TheOriginGoesAroundALateInnerNodeLevelByLevel) {
    constexpr std::uint32_t nodes = 8192;
    struct Case {
        std::vector<std::uint32_t> late;
        std::size_t peers;
    };
    for (const auto& [late, peers] :
         {Case{{}, 4}, Case{{1}, 4 + 4}, Case{{5}, 4 + 1 + 4}, Case{{8191}, 4 + 1}, Case{{1, 5}, 4 + 4 + 4},
          Case{{1, 2, 3, 4}, 4 + 16}, Case{{1, 5, 21}, 4 + 4 + 4 + 4}}) {
        Network network(nodes, 4);
        for (const std::uint32_t rank : late) {
            network[rank].dead = true;
        }
        network[0].roll_call.call("ready", "", 1000ms, Call::Silence::is_expected, network.now());
        network.run();
        EXPECT_EQ(network[0].result.size(), nodes - late.size());
        EXPECT_EQ(network[0].peers.size(), peers) << late.size() << " late";
    }
}

TEST(RollCall, NorDoesItAskAllIfAllAreLate) {
    for (const std::size_t arity : {std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
        Network network(8192, arity);
        for (std::uint32_t rank = 1; rank < 8192; ++rank) {
            network[rank].dead = true;
        }
        network[0].roll_call.call("ready", "", 1000ms, Call::Silence::is_expected, network.now());
        network.run();
        EXPECT_EQ(network[0].result.size(), 1U);
        EXPECT_LT(network[0].peers.size(), 64U);
    }
}

TEST(RollCall, BelowALostInnerNodeAllAreAskedAndOnlyItIsMissing) {
    for (const std::size_t arity : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
        for (std::uint32_t lost = 1; lost < 20; ++lost) {
            Network network(20, arity);
            network[lost].dead = true;
            const TimePoint before = network.now();
            network[0].roll_call.call("status", "", 1000ms, suspicious, before);
            network.run();
            std::vector<std::uint32_t> expected;
            for (std::uint32_t rank = 0; rank < 20; ++rank) {
                if (rank != lost) {
                    expected.push_back(rank);
                }
            }
            ASSERT_EQ(network[0].finished_ids.size(), 1U);
            EXPECT_EQ(ranks_of(network[0].result), expected) << "arity " << arity << ", lost " << lost;
            EXPECT_LE(network.now(), before + 1000ms);
        }
    }
}

// Too little time to share it out over the levels of a tree: still every node is asked.
TEST(RollCall, ShortPatienceReachesAll) {
    for (const auto patience : {1ms, 2ms, 4ms, 10ms}) {
        Network network(30, 1);
        network[0].roll_call.call("status", "", patience, suspicious, network.now());
        network.run();
        ASSERT_EQ(network[0].finished_ids.size(), 1U);
        EXPECT_EQ(network[0].result.size(), 30U) << patience.count() << " ms";
    }
}

TEST(RollCall, LostNodesThatAreKnownAreNotWaitedFor) {
    Network network(20, 2);
    network[1].dead = true;
    for (std::uint32_t rank = 0; rank < 20; ++rank) {
        if (rank != 1) {
            network[rank].membership.suspect(Rank{1});
        }
    }
    const TimePoint before = network.now();
    network[0].roll_call.call("status", "", 1000ms, suspicious, before);
    network.run();
    EXPECT_EQ(network[0].result.size(), 19U);
    EXPECT_EQ(network.now(), before);
}

// What the failure detector finds while the call is under way.
TEST(RollCall, ANodeThatIsFoundLostIsWaitedForNoMore) {
    for (const std::size_t arity : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
        for (std::uint32_t lost = 1; lost < 20; ++lost) {
            Network network(20, arity);
            network[lost].dead = true;
            const TimePoint before = network.now();
            network[0].roll_call.call("status", "", 1000ms, suspicious, before);
            network.deliver_all();
            EXPECT_TRUE(network[0].finished_ids.empty());
            while (network[0].finished_ids.empty()) {
                int finders = 0;
                for (std::uint32_t rank = 0; rank < 20; ++rank) {
                    if (rank != lost && network[rank].roll_call.awaited().contains(Rank{lost})) {
                        network[rank].membership.suspect(Rank{lost});
                        network[rank].roll_call.peer_lost(Rank{lost});
                        ++finders;
                    }
                }
                ASSERT_GT(finders, 0) << "nobody waits for the lost node, but the call does not end";
                network.deliver_all();
            }
            EXPECT_EQ(network[0].result.size(), 19U) << "arity " << arity << ", lost " << lost;
            EXPECT_EQ(network.now(), before);
        }
    }
}

TEST(RollCall, NodesThatMayStillStartAreNotSuspected) {
    Network network(20, 2);
    network[1].dead = true;
    network[0].roll_call.call("ready", "", 1000ms, Call::Silence::is_expected, network.now());
    network.deliver_all();
    for (std::uint32_t rank = 0; rank < 20; ++rank) {
        EXPECT_TRUE(network[rank].roll_call.awaited().empty()) << rank;
    }
}

TEST(RollCall, ALateAnswerGoesToTheOriginAndAnEvenLaterOneNowhere) {
    Network network(3, 1);  // 0 - 1 - 2
    const auto id = network[0].roll_call.call("status", "", 1000ms, suspicious, network.now());
    const auto to_1 = network.messages().front();
    network.messages().clear();
    network.deliver(to_1);
    const auto to_2 = network.messages().front();
    network.messages().clear();
    network.deliver(to_2);
    const auto late = network.messages().front();
    network.messages().clear();

    // Node 1 gives up on node 2 and answers alone.
    network[1].roll_call.tick(network.now() + 450ms);
    const auto of_1 = network.messages().front();
    network.messages().clear();
    network.deliver(of_1);
    EXPECT_TRUE(network[0].finished_ids.empty());
    ASSERT_EQ(network.messages().size(), 1U) << "the origin asks node 2 directly";
    EXPECT_EQ(network.messages().front().to, Rank{2});
    network.messages().clear();

    network.deliver(late);
    ASSERT_EQ(network.messages().size(), 1U);
    EXPECT_EQ(network.messages().front().to, Rank{0});
    network.deliver_all();
    ASSERT_EQ(network[0].finished_ids, std::vector{id});
    EXPECT_EQ(network[0].result.size(), 3U);

    network.deliver(late);
    network.deliver_all();
    EXPECT_EQ(network[0].finished_ids.size(), 1U) << "finished twice";
    EXPECT_TRUE(network.messages().empty());
}

TEST(RollCall, ADuplicateCallIsAnsweredOnce) {
    Network network(7, 2);
    network[0].roll_call.call("status", "", 1000ms, suspicious, network.now());
    const auto first = network.messages().front();
    network.messages().push_back(first);
    network.run();
    EXPECT_EQ(network[first.to.value].answered, 1);
    EXPECT_EQ(network[0].result.size(), 7U);
}

TEST(RollCall, CallsOfDifferentOriginsDoNotMix) {
    Network network(10, 2);
    const auto a = network[0].roll_call.call("a", "", 1000ms, suspicious, network.now());
    const auto b = network[5].roll_call.call("b", "", 1000ms, suspicious, network.now());
    const auto c = network[5].roll_call.call("c", "", 1000ms, suspicious, network.now());
    network.run();
    EXPECT_EQ(network[0].finished_ids, std::vector{a});
    EXPECT_EQ(network[5].finished_ids, (std::vector{b, c}));
    EXPECT_EQ(network[0].result.back().text, "a  9");
    EXPECT_EQ(network[5].result.back().text, "c  9");
}

TEST(RollCall, NextDeadlineIsTheHalfAndThenEachEighth) {
    Network network(3, 1);
    RollCall& roll_call = network[0].roll_call;
    EXPECT_FALSE(roll_call.next_deadline());
    const TimePoint start = network.now();
    roll_call.call("status", "", 1000ms, suspicious, start);
    EXPECT_EQ(roll_call.next_deadline(), start + 500ms);
    network.messages().clear();

    roll_call.tick(start + 499ms);
    EXPECT_TRUE(network.messages().empty());
    roll_call.tick(start + 500ms);
    ASSERT_EQ(network.messages().size(), 1U);
    EXPECT_EQ(network.messages().front().to, Rank{2}) << "below the one that is late";
    EXPECT_EQ(std::get<Call>(network.messages().front().message).patience, 200ms);
    for (const auto due : {625ms, 750ms, 875ms}) {
        EXPECT_EQ(roll_call.next_deadline(), start + due);
        roll_call.tick(start + due);
        EXPECT_EQ(network.messages().size(), 1U) << "asked again";
    }
    EXPECT_EQ(roll_call.next_deadline(), start + 1000ms);
    roll_call.tick(start + 1000ms);
    EXPECT_EQ(ranks_of(network[0].result), std::vector<std::uint32_t>{0});
    EXPECT_FALSE(roll_call.next_deadline());
}

TEST(RollCall, ACallFromALostNodeIsDropped) {
    Network network(4, 2);
    network[2].membership.suspect(Rank{0});
    network[2].roll_call.receive(
        Rank{0}, Call{.id = 1, .origin = Rank{0}, .verb = "x", .argument = "", .patience = 1s},
        network.now());
    EXPECT_TRUE(network.messages().empty());
    EXPECT_FALSE(network[2].roll_call.next_deadline());
}

TEST(RollCall, SomeNodesCanBeAskedAlone) {
    Network network(8192, 4);
    const std::vector<Rank> some{Rank{0}, Rank{7}, Rank{512}, Rank{8000}};
    network[0].roll_call.ask(some, "uses", "x", 1000ms, network.now());
    network[0].roll_call.ask(std::vector{Rank{7}, Rank{8}}, "more", "", 1000ms, network.now());
    EXPECT_EQ(network.messages().size(), 5U);
    const TimePoint before = network.now();
    network.run();
    EXPECT_EQ(network.now(), before) << "waited for nothing";
    EXPECT_EQ(network[0].finished_ids.size(), 2U);
    EXPECT_EQ(network[0].peers, (std::set{Rank{7}, Rank{8}, Rank{512}, Rank{8000}}));
}

TEST(RollCall, OfSomeNodesALateOneIsMissing) {
    Network network(100, 4);
    network[7].dead = true;
    network[0].roll_call.ask({Rank{0}, Rank{7}, Rank{50}}, "uses", "x", 1000ms, network.now());
    network.run();
    ASSERT_EQ(network[0].finished_ids.size(), 1U);
    EXPECT_EQ(ranks_of(network[0].result), (std::vector<std::uint32_t>{0, 50}));
    EXPECT_EQ(network[0].peers, (std::set{Rank{7}, Rank{50}}));
}

// The number of nodes that the parts tell of together. Each counts once, and the parts name all of them.
std::size_t counted_in(const std::vector<Answer::Part>& parts) {
    std::set<Rank> ranks;
    std::uint64_t sum = 0;
    std::size_t named = 0;
    for (const auto& part : parts) {
        ranks.insert(part.rank);
        ranks.insert(part.with.begin(), part.with.end());
        named += 1 + part.with.size();
        sum += std::stoull(part.text);
    }
    EXPECT_EQ(ranks.size(), named);
    EXPECT_EQ(ranks.size(), sum);
    return ranks.size();
}

TEST(RollCall, AddsUpOnTheWayUp) {
    for (const std::uint32_t size : {1U, 2U, 5U, 50U, 10000U}) {
        Network network(size, 4);
        network[size / 2].roll_call.call("sum", "", 10s, suspicious, network.now());
        network.run();
        const auto& parts = network[size / 2].result;
        EXPECT_EQ(counted_in(parts), size);
        EXPECT_LE(parts.size(), 5U) << "one for itself, and one for each child";
    }
}

TEST(RollCall, ASumCountsEachNodeOnceWhoeverIsLost) {
    for (const std::size_t arity : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
        for (std::uint32_t lost = 1; lost < 20; ++lost) {
            Network network(20, arity);
            network[lost].dead = true;
            network[0].roll_call.call("sum", "", 1000ms, suspicious, network.now());
            network.run();
            EXPECT_EQ(counted_in(network[0].result), 19U) << "arity " << arity << ", lost " << lost;
        }
    }
}

// The origin asked a node directly, and then hears of that node in a sum as well.
TEST(RollCall, ANodeThatIsInASumAndAnswersDirectlyCountsOnce) {
    Network network(3, 1);
    const auto id = network[0].roll_call.call("sum", "", 10s, suspicious, network.now());
    network.messages().clear();
    const auto hear = [&](std::uint32_t from, Answer::Part part) {
        network[0].roll_call.receive(Rank{from},
                                     Answer{.id = id, .origin = Rank{0}, .parts = {std::move(part)}});
    };
    hear(2, {.rank = Rank{2}, .text = "1"});
    hear(1, {.rank = Rank{1}, .text = "2", .with = {Rank{2}}});
    ASSERT_TRUE(network[0].finished_ids.empty()) << "rank 1 is in no part that counts";
    network.run();  // asks it directly
    EXPECT_EQ(counted_in(network[0].result), 3U);
}

}  // namespace
}  // namespace copper
