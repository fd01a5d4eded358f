#include "collectives/protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/directory_object.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

const Trees trees({"/app"});

// Some nodes of a job. Messages arrive in the order in which they were sent, all at one moment of a clock
// that is set by hand; those to nodes that are not there get lost. Reads of the backing filesystem end at
// once.
class Nodes {
  public:
    struct Node final : Protocol::Effects {
        Node(Nodes& owner, Protocol::Options options)
            : nodes(owner), self(options.membership.self), protocol(options, trees, *this) {}

        void send(std::span<const Rank> to, const Message& message) override {
            for (const Rank rank : to) {
                nodes.queue_.push_back({self, rank, message});
                sent_to.push_back(rank);
            }
        }
        void state_changed(Rank rank, NodeState state) override { changes.push_back({rank, state}); }
        ObjectPtr find(const ObjectKey& key) override {
            return objects.contains(key.path) ? objects.at(key.path) : nullptr;
        }
        void deliver(const ObjectKey& key, const ObjectPtr& object) override { objects[key.path] = object; }
        void read(const ObjectKey& key) override { reads.push_back(key); }
        TimePoint latest_call(const ObjectKey&) override { return {}; }
        std::string filesystem_of(const std::string&) override { return "/"; }
        std::uint64_t backlog_bytes(Rank /*to*/) override { return 0; }
        std::uint64_t backlog_bytes() override { return 0; }
        std::optional<std::string> answer(const Call& /*call*/) override { return ""; }
        void finished(std::uint64_t /*id*/, std::vector<Answer::Part> parts) override {
            answers = std::move(parts);
        }

        NodeState state_of(Rank rank) const { return protocol.membership().state(rank); }

        Nodes& nodes;
        const Rank self;
        Protocol protocol;
        std::vector<Rank> sent_to;
        std::vector<std::pair<Rank, NodeState>> changes;
        std::map<std::string, ObjectPtr> objects;
        std::deque<ObjectKey> reads;
        std::vector<ObjectKey> has_read;
        std::vector<Answer::Part> answers;
        bool is_mount_broken = false;
    };

    // The first `count` nodes of a job of `size`.
    Nodes(std::uint32_t count, std::uint32_t size, std::size_t arity = 4) {
        for (std::uint32_t rank = 0; rank < count; ++rank) {
            const Membership::Options membership{.size = size, .self = Rank{rank}, .arity = arity};
            nodes_.push_back(
                std::make_unique<Node>(*this, Protocol::Options{.membership = membership, .mover = {}}));
        }
    }

    Node& operator[](Rank rank) { return *nodes_[rank.value]; }
    TimePoint now() const { return now_; }

    // Until nothing is on its way any more. Returns how many messages that took.
    std::size_t run() {
        constexpr std::size_t messages_max = 10000;
        std::size_t messages = 0;
        do {
            finish_reads();
            for (; !queue_.empty() && messages < messages_max; ++messages) {
                const InFlight next = std::move(queue_.front());
                queue_.pop_front();
                if (next.to.value < nodes_.size() && !lost_links.contains({next.from, next.to})) {
                    nodes_[next.to.value]->protocol.receive(next.from, next.message, now_);
                }
            }
        } while (messages < messages_max && has_reads());
        return messages;
    }

    void pass(std::chrono::milliseconds time) {
        constexpr auto step = 10ms;
        for (const TimePoint end = now_ + time; now_ < end;) {
            now_ += step;
            for (auto& node : nodes_) {
                node->protocol.tick(now_);
            }
            run();
        }
    }

    // The object at `path`, on a node that wants it; nothing if it did not come.
    ObjectPtr get(Rank rank, const std::string& path) {
        (*this)[rank].protocol.want({ObjectKind::directory, path}, FetchFor::demand, now_);
        run();
        return (*this)[rank].find({ObjectKind::directory, path});
    }

    std::set<std::pair<Rank, Rank>> lost_links;  // from the first node to the second

  private:
    struct InFlight {
        Rank from;
        Rank to;
        Message message;
    };

    bool has_reads() const {
        return std::any_of(nodes_.begin(), nodes_.end(),
                           [](const auto& node) { return !node->reads.empty(); });
    }

    void finish_reads() {
        for (auto& node : nodes_) {
            for (; !node->reads.empty(); node->reads.pop_front()) {
                const ObjectKey key = node->reads.front();
                node->has_read.push_back(key);
                const auto object =
                    node->is_mount_broken
                        ? make_error(EIO)
                        : make_object(test::directory_of(
                              {{.name = key.path.substr(1, 3), .target = "", .attributes = {}}}));
                node->protocol.read_done(key, object, now_);
            }
        }
    }

    std::vector<std::unique_ptr<Node>> nodes_;
    std::deque<InFlight> queue_;
    TimePoint now_{1h};
};

constexpr Rank a{0};
constexpr Rank b{1};

// A node that has heard so much since that it does not tell of the suspicion any more.
void let_suspect(Nodes& nodes, Rank accuser, Rank accused) {
    Protocol& protocol = nodes[accuser].protocol;
    const auto tell = [&](std::uint32_t rank, std::uint32_t incarnation, NodeState state) {
        protocol.receive(Rank{40}, Pong{.news = {{Rank{rank}, incarnation, state}}}, nodes.now());
    };
    tell(accused.value, 0, NodeState::suspect);
    for (std::uint32_t rank = 10; rank < 40; ++rank) {
        tell(rank, 1, rank % 2 == 0 ? NodeState::suspect : NodeState::resigned);
    }
    ASSERT_EQ(nodes[accuser].state_of(accused), NodeState::suspect);
    for (const News& news : protocol.membership().news()) {
        ASSERT_NE(news.rank, accused);
    }
}

TEST(Suspicions, AreContradictedHoweverMuchElseHasChanged) {
    Nodes nodes(2, 64);
    ASSERT_NO_FATAL_FAILURE(let_suspect(nodes, a, b));
    const Message any_word = Answer{.id = 7, .origin = a, .parts = {}};
    nodes[a].protocol.receive(b, any_word, nodes.now());
    EXPECT_LE(nodes.run(), 4U) << "a ping, and the answers to it and to what it said";
    EXPECT_EQ(nodes[a].state_of(b), NodeState::serving);
    EXPECT_EQ(nodes[b].state_of(b), NodeState::serving);
    EXPECT_EQ(nodes[a].changes.back(), std::pair(b, NodeState::serving));
    nodes[a].protocol.receive(b, any_word, nodes.now());
    EXPECT_EQ(nodes.run(), 0U) << "it is over";
}

TEST(Suspicions, OfANodeThatSaysMuchAreAskedOfItOnce) {
    Nodes nodes(2, 64);
    ASSERT_NO_FATAL_FAILURE(let_suspect(nodes, a, b));
    const auto hear = [&](TimePoint now) {
        for (int i = 0; i < 100; ++i) {
            nodes[a].protocol.receive(b, Answer{.id = 7, .origin = a, .parts = {}}, now);
        }
        return nodes[a].sent_to.size();
    };
    EXPECT_EQ(hear(nodes.now()), 1U);
    EXPECT_EQ(hear(nodes.now() + 349ms), 1U);
    EXPECT_EQ(hear(nodes.now() + 350ms), 2U) << "it may have been lost";
    nodes.run();
    EXPECT_EQ(nodes[a].state_of(b), NodeState::serving);
}

TEST(Suspicions, OfEachOtherEndInOneExchange) {
    Nodes nodes(2, 64);
    ASSERT_NO_FATAL_FAILURE(let_suspect(nodes, a, b));
    ASSERT_NO_FATAL_FAILURE(let_suspect(nodes, b, a));
    nodes[a].protocol.receive(b, Ping{.news = nodes[b].protocol.membership().news_for(a)}, nodes.now());
    EXPECT_LE(nodes.run(), 8U);
    EXPECT_EQ(nodes[a].state_of(b), NodeState::serving);
    EXPECT_EQ(nodes[b].state_of(a), NodeState::serving);
}

TEST(Suspicions, AreContradictedWhereverTheyAreHeard) {
    for (const Message& message :
         {Message(Pong{.news = {{b, 0, NodeState::suspect}}}),
          Message(Interest{.key = {ObjectKind::directory, "/app"}, .news = {{b, 0, NodeState::dead}}})}) {
        Nodes nodes(2, 64);
        nodes[a].protocol.receive(Rank{2}, message, nodes.now());
        ASSERT_FALSE(nodes[a].protocol.membership().is_alive(b));
        nodes[b].protocol.receive(a, message, nodes.now());
        nodes.run();
        EXPECT_EQ(nodes[a].state_of(b), NodeState::serving);
    }
}

TEST(Suspicions, ANodeThatSaysNothingIsPingedNowAndThenAndComesBack) {
    Nodes nodes(2, 3);
    nodes[a].protocol.receive(Rank{2}, Pong{.news = {{b, 0, NodeState::suspect}}}, nodes.now());
    ASSERT_EQ(nodes.run(), 0U);
    ASSERT_EQ(nodes[a].state_of(b), NodeState::suspect);
    nodes.pass(6s);
    EXPECT_EQ(nodes[a].state_of(b), NodeState::serving);
}

TEST(Suspicions, OfANodeThatIsAskedAndSaysNothingAreToldToOthers) {
    Nodes nodes(3, 4, 2);  // node 3 is not there
    std::string path;
    for (int i = 0; path.empty(); ++i) {
        const std::string candidate = "/app/" + std::to_string(i);
        if (nodes[a].protocol.membership().route({.kind = ObjectKind::directory, .path = candidate}).reader ==
            Rank{3}) {
            path = candidate;
        }
    }
    EXPECT_EQ(nodes.get(a, path), nullptr);
    nodes.pass(2s);
    EXPECT_EQ(nodes[a].state_of(Rank{3}), NodeState::suspect);
    EXPECT_NE(nodes[a].find({ObjectKind::directory, path}), nullptr);
    EXPECT_EQ(nodes[a].protocol.nodes_lost(), 1U);
    std::size_t informed = 0;
    for (const Rank rank : {Rank{1}, Rank{2}}) {
        informed += nodes[rank].state_of(Rank{3}) == NodeState::suspect ? 1 : 0;
    }
    EXPECT_GE(informed, 1U) << "the reader that was asked instead";
}

TEST(Leaving, TakesAFewMessagesHoweverLargeTheJob) {
    for (const std::uint32_t size : {2U, 16U, 100U, 1000U, 8192U, 100000U}) {
        Nodes nodes(1, size);
        nodes[a].protocol.leave(nodes.now());
        const auto& to = nodes[a].sent_to;
        EXPECT_GE(to.size(), 1U) << size;
        EXPECT_LE(to.size(), 36U) << size;
        EXPECT_EQ(std::set<Rank>(to.begin(), to.end()).size(), to.size()) << "told twice, of " << size;
    }
}

TEST(Leaving, IsKnownToTheNeighboursAndFromThemToOthers) {
    Nodes nodes(4, 4, 2);
    nodes[b].protocol.leave(nodes.now());
    const auto told = nodes[b].sent_to;
    ASSERT_FALSE(told.empty());
    nodes.run();
    for (const Rank rank : told) {
        EXPECT_EQ(nodes[rank].state_of(b), NodeState::dead);
        EXPECT_EQ(nodes[rank].changes.back(), std::pair(b, NodeState::dead));
        EXPECT_EQ(nodes[rank].protocol.nodes_lost(), 1U);
    }
    for (int i = 0; i < 20; ++i) {
        for (const Rank rank : {Rank{0}, Rank{2}, Rank{3}}) {
            EXPECT_NE(nodes.get(rank, "/app/" + std::to_string(i)), nullptr) << "nobody waits for it";
        }
    }
    for (const Rank rank : {Rank{0}, Rank{2}, Rank{3}}) {
        EXPECT_EQ(nodes[rank].state_of(b), NodeState::dead);
    }
}

TEST(Cutting, HoldsForThisNodeAloneAndForGood) {
    Nodes nodes(3, 3, 2);
    nodes[a].protocol.cut(b, nodes.now());
    nodes[a].protocol.cut(b, nodes.now());
    EXPECT_EQ(nodes[a].protocol.nodes_lost(), 1U);
    nodes[a].protocol.receive(Rank{2}, Pong{.news = {{b, 1, NodeState::serving}}}, nodes.now());
    for (int i = 0; i < 20; ++i) {
        EXPECT_NE(nodes.get(a, "/app/" + std::to_string(i)), nullptr);
    }
    EXPECT_EQ(nodes[a].state_of(b), NodeState::dead);
    EXPECT_EQ(nodes[Rank{2}].state_of(b), NodeState::serving) << "others may reach it";
}

// Each node asks for something new every second.
void use(Nodes& nodes, std::uint32_t count, std::chrono::seconds time) {
    static int number = 0;
    for (const TimePoint end = nodes.now() + time; nodes.now() < end; nodes.pass(1s)) {
        for (std::uint32_t rank = 0; rank < count; ++rank) {
            for (int i = 0; i < 4; ++i) {
                nodes.get(Rank{rank}, "/app/" + std::to_string(++number));
            }
        }
    }
}

TEST(Cutting, OfALinkInOneDirectionSettlesAndMends) {
    constexpr std::uint32_t count = 8;
    Nodes nodes(count, count, 2);
    const auto changes = [&nodes] {
        std::size_t all = 0;
        for (std::uint32_t rank = 0; rank < count; ++rank) {
            all += nodes[Rank{rank}].changes.size();
        }
        return all;
    };
    const Rank above{7};  // a asks it, and b asks a, each in one of the trees
    nodes.lost_links = {{a, above}, {a, b}};
    use(nodes, count, 20s);
    EXPECT_EQ(nodes[a].state_of(above), NodeState::dead);
    EXPECT_EQ(nodes[b].state_of(a), NodeState::dead);
    for (std::uint32_t rank = 2; rank < count; ++rank) {
        EXPECT_EQ(nodes[Rank{rank}].state_of(a), NodeState::serving) << rank;
        EXPECT_EQ(nodes[Rank{rank}].state_of(above), NodeState::serving) << rank;
    }
    const std::size_t settled = changes();
    EXPECT_LE(settled, 2 * (2 * count + 1)) << "each suspects the other one once, and cuts it";
    use(nodes, count, 60s);
    EXPECT_EQ(changes(), settled);

    nodes.lost_links.clear();
    use(nodes, count, 20s);
    EXPECT_EQ(nodes[a].state_of(above), NodeState::serving);
    EXPECT_EQ(nodes[b].state_of(a), NodeState::serving);
    EXPECT_EQ(changes(), settled + 2);
    for (std::uint32_t rank = 1; rank < count; ++rank) {
        EXPECT_EQ(nodes[Rank{rank}].protocol.membership().epoch(), nodes[a].protocol.membership().epoch());
    }
}

class BrokenMount : public testing::Test {
  protected:
    void SetUp() override {
        nodes[b].is_mount_broken = true;
        for (int i = 0; of_b.size() < 9 || of_others.size() < 20; ++i) {
            const std::string path = "/app/" + std::to_string(i);
            (reader_of(path, a) == b ? of_b : of_others).push_back(path);
        }
    }
    Rank reader_of(const std::string& path, Rank node) {
        return nodes[node].protocol.membership().route({.kind = ObjectKind::directory, .path = path}).reader;
    }
    std::size_t reads(Rank rank) { return nodes[rank].has_read.size(); }

    Nodes nodes{4, 4, 2};
    std::vector<std::string> of_b;  // listings that b is to read
    std::vector<std::string> of_others;
};

TEST_F(BrokenMount, AReaderThatCannotReadResignsAndItsFileTreesMoveAndComeBack) {
    const ObjectPtr object = nodes.get(a, of_b[0]);
    ASSERT_NE(object, nullptr);
    EXPECT_NE(object->directory(), nullptr) << "what another reader found, not the error";
    EXPECT_EQ(reads(b), 1U);
    for (const Rank node : {a, b}) {
        EXPECT_EQ(nodes[node].state_of(b), NodeState::resigned);
        EXPECT_NE(reader_of(of_b[1], node), b);
        EXPECT_EQ(nodes[node].changes.back(), std::pair(b, NodeState::resigned));
    }
    for (int i = 1; i < 5; ++i) {
        for (const Rank node : {a, b, Rank{2}, Rank{3}}) {
            EXPECT_NE(nodes.get(node, of_b[static_cast<std::size_t>(i)]), nullptr);
        }
    }
    EXPECT_EQ(reads(b), 1U) << "it reads no more";

    nodes[b].is_mount_broken = false;
    nodes.pass(59s);
    EXPECT_EQ(nodes[b].state_of(b), NodeState::resigned);
    nodes.pass(2s);
    EXPECT_EQ(nodes[b].state_of(b), NodeState::serving);
    for (std::size_t i = 0; i < 10; ++i) {  // it tells them with what it asks for
        EXPECT_NE(nodes.get(b, of_others[i]), nullptr);
        EXPECT_NE(nodes.get(Rank{2}, of_others[10 + i]), nullptr);
    }
    for (const Rank node : {a, b, Rank{2}, Rank{3}}) {
        EXPECT_EQ(nodes[node].state_of(b), NodeState::serving) << node.value;
        EXPECT_EQ(reader_of(of_b[5], node), b) << node.value;
    }
    const std::size_t before = reads(b);
    EXPECT_NE(nodes.get(a, of_b[5]), nullptr);
    EXPECT_EQ(reads(b), before + 1);
}

TEST_F(BrokenMount, WhatAllReadersMeetIsTheTruthAndNobodyResigns) {
    for (const Rank node : {a, Rank{2}, Rank{3}}) {
        nodes[node].is_mount_broken = true;
    }
    const ObjectPtr object = nodes.get(a, of_b[0]);
    ASSERT_NE(object, nullptr);
    EXPECT_EQ(object->error().value(), EIO);
    for (const Rank node : {a, b, Rank{2}, Rank{3}}) {
        EXPECT_EQ(nodes[node].state_of(node), NodeState::serving);
        EXPECT_LE(reads(node), 1U);
    }
    EXPECT_EQ(reads(a) + reads(b) + reads(Rank{2}) + reads(Rank{3}), 2U) << "two that agree are believed";
}

TEST(Calls, ReachAllNodesAndThoseThatAreSuspectedAnswerToo) {
    Nodes nodes(4, 4, 2);
    nodes[a].protocol.receive(b, Pong{.news = {{Rank{3}, 0, NodeState::suspect}}}, nodes.now());
    nodes[a].protocol.call("status", "", 1s, Call::Silence::is_suspicious, nodes.now());
    nodes.run();
    nodes.pass(1s);
    EXPECT_EQ(nodes[a].answers.size(), 4U);
    EXPECT_EQ(nodes[a].state_of(Rank{3}), NodeState::serving) << "it has answered, and contradicted";
}

}  // namespace
}  // namespace copper
