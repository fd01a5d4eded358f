// To whom a node sends an object, and to whom not.
#include "collectives/mover.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/mover_fixture.hpp"

namespace copper {
namespace {

using namespace test;

TEST(MoverSending, AnswersFromTheCache) {
    Node node(at(listing_key, 1));
    const ObjectPtr object = small_object();
    node.effects.cache[listing_key] = object;
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    const auto publications = node.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 1U);
    EXPECT_EQ(publications[0].first, std::vector{at(listing_key, 3)});
    EXPECT_EQ(publications[0].second.spread, Publication::Spread::asked);
    EXPECT_EQ(publications[0].second.object, object);
    EXPECT_TRUE(node.effects.sent.empty());
    EXPECT_EQ(node.mover.pending(), 0U);
}

TEST(MoverSending, AnInterestThatCrossesTheBroadcastIsNotAnsweredTwice) {
    Node node(reader_of(listing_key));
    const Rank child = node.children(listing_key).front();
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.read_done(listing_key, small_object(), start);
    const auto sequence = node.effects.take<Publication>().at(0).second.sequence;

    node.mover.receive(child, Interest{.key = listing_key, .seen = {sequence - 1, 0}}, start);
    EXPECT_TRUE(node.effects.sent.empty()) << "it is still on its way to that node";

    node.mover.receive(child, Interest{.key = listing_key, .seen = {sequence, 0}}, start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U) << "it arrived, and was evicted there";

    node.mover.receive(child, Interest{.key = listing_key, .attempt = 1}, start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U) << "it waited in vain";
}

TEST(MoverSending, ABroadcastIsForwardedBeforeItIsUsedAndOnce) {
    Node node(at(listing_key, 1));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.receive(at(listing_key, 9), Interest{.key = listing_key}, start);
    node.effects.sent.clear();
    node.effects.log.clear();

    const Publication publication = broadcast_of(listing_key, small_object(), 5, 1);
    node.mover.receive(reader_of(listing_key), publication, start);
    EXPECT_EQ(node.effects.log, (std::vector<std::string>{"send", "send", "deliver"}));
    EXPECT_EQ(node.effects.for_all, std::vector{listing_key});
    const auto publications = node.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 2U);
    EXPECT_EQ(publications[0].second.spread, Publication::Spread::everyone);
    EXPECT_EQ(publications[1].first, std::vector{at(listing_key, 9)}) << "asked, though it is no child";
    EXPECT_EQ(node.mover.counters().publications_sent, 3U);

    node.mover.receive(reader_of(listing_key), publication, start);
    node.mover.receive(reader_of(listing_key), broadcast_of(listing_key, small_object(), 4, 2), start);
    EXPECT_TRUE(node.effects.sent.empty());
    EXPECT_EQ(node.effects.delivered.size(), 1U);
    EXPECT_EQ(node.mover.counters().duplicates, 2U);

    // The same object published anew, after a refresh.
    node.effects.cache.clear();
    node.mover.receive(reader_of(listing_key), broadcast_of(listing_key, small_object(), 6, 3), start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U);
    EXPECT_EQ(node.effects.delivered.size(), 2U);
}

TEST(MoverSending, ANodeThatHoldsTheObjectForwardsItAllTheSame) {
    Node node(at(listing_key, 1));
    const ObjectPtr first = small_object(1);
    node.effects.cache[listing_key] = first;
    node.mover.receive(reader_of(listing_key), broadcast_of(listing_key, small_object(2), 5, 1), start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U);
    EXPECT_TRUE(node.effects.delivered.empty()) << "the first version stays";
    EXPECT_EQ(node.mover.counters().duplicates, 1U);
}

TEST(MoverSending, TheObjectIsNotSentBackToWhereItCameFrom) {
    Node node(at(listing_key, 1));
    node.mover.want(listing_key, FetchFor::demand, start);
    // Its view of the membership differs: it asks here what is asked of it.
    node.mover.receive(reader_of(listing_key), Interest{.key = listing_key}, start);
    node.effects.sent.clear();
    node.mover.receive(reader_of(listing_key), broadcast_of(listing_key, small_object(), 5, 1), start);
    for (const auto& [to, publication] : node.effects.take<Publication>()) {
        EXPECT_EQ(std::count(to.begin(), to.end(), reader_of(listing_key)), 0);
    }
}

TEST(MoverSending, ABroadcastThatOvertakesADirectReadStays) {
    Node node(at(listing_key, 3), deadline(10s));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.tick(start + 5s);
    node.mover.tick(start + 10s);
    ASSERT_EQ(node.effects.reads.size(), 1U);
    const ObjectPtr first = small_object(1);
    node.mover.receive(at(listing_key, 1), broadcast_of(listing_key, first, 5, 1), start + 11s);
    node.effects.sent.clear();
    node.mover.read_done(listing_key, small_object(2), start + 12s);
    EXPECT_EQ(node.effects.delivered, std::vector{first});
    EXPECT_EQ(node.effects.cache.at(listing_key), first);
    EXPECT_TRUE(node.effects.sent.empty());
}

TEST(MoverSending, ALostAskerIsNotAnswered) {
    Node node(reader_of(listing_key));
    const Rank asker = at(listing_key, 9);
    node.mover.receive(asker, Interest{.key = listing_key}, start);
    node.note({.rank = asker, .state = NodeState::dead}, start);
    node.mover.read_done(listing_key, small_object(), start);
    for (const auto& [to, publication] : node.effects.take<Publication>()) {
        EXPECT_EQ(std::count(to.begin(), to.end(), asker), 0);
    }
}

TEST(MoverSending, BroadcastsPassOverANodeToWhichTooMuchIsOnItsWay) {
    Node reader(reader_of(listing_key));
    const auto children = reader.children(listing_key);
    reader.effects.backlogs[children.at(0)] = 17U << 20;
    reader.mover.want(listing_key, FetchFor::demand, start);
    reader.mover.read_done(listing_key, small_object(), start);
    auto sent = reader.effects.take<Publication>();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].first, std::vector{children.at(1)});
    EXPECT_EQ(reader.mover.counters().passed_over, 1U);

    reader.mover.receive(children.at(0), Interest{.key = listing_key}, start);
    sent = reader.effects.take<Publication>();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].first, std::vector{children.at(0)}) << "a node that asks is not passed over";
}

TEST(MoverSending, TheReadersOwnUseCountsLikeThatOfOthers) {
    Node reader(reader_of(listing_key), {});
    const Rank node = reader.children(listing_key)[0];
    reader.mover.want(listing_key, FetchFor::demand, start);
    reader.mover.read_done(listing_key, small_object(), start);
    reader.mover.receive(node, Interest{.key = listing_key, .origin = node}, start);
    reader.effects.sent.clear();

    const ObjectKey key = extent_of("a", 0);
    reader.mover.receive(node, Interest{.key = key, .origin = node}, start);
    reader.mover.read_done(key, small_object(), start);
    EXPECT_EQ(reader.effects.take<Publication>().at(0).second.spread, Publication::Spread::everyone);
}

// Files that each node reads for itself.

// The reader has noticed that nodes 1 and 2 read a large file each, and small ones by turns.
struct ReaderOfShards : Node {
    ReaderOfShards() : Node(reader_of(listing_key), {}) {
        for (const std::uint32_t node : {1U, 2U}) {
            for (std::uint32_t index = 1; index <= 8; ++index) {
                const ObjectKey key = extent_of("shard" + std::to_string(node), index);
                read_for(Rank{node}, key);
            }
        }
        for (std::uint32_t number = 0; number < 500; ++number) {
            read_for(Rank{1 + number % 2}, extent_of(std::to_string(number), 0));
        }
        effects.reads.clear();
        effects.sent.clear();
    }

    void read_for(Rank node, const ObjectKey& key) {
        mover.receive(node, Interest{.key = key, .origin = node}, start);
        mover.read_done(key, small_object(), start);
    }
    // What it answers to an Interest of `asker` that comes through `relay`.
    std::vector<Decline> declines(Node& asker, Node& relay) {
        relay.mover.receive(asker.membership.self(), asker.effects.take<Interest>().at(0).second, start);
        mover.receive(relay.membership.self(), relay.effects.take<Interest>().at(0).second, start);
        std::vector<Decline> answers;
        for (const auto& [to, decline] : effects.take<Decline>()) {
            answers.push_back(decline);
        }
        return answers;
    }
};

TEST(MoverSending, WhoReadsAFileThatNobodySharesReadsItByItself) {
    for (const ObjectKey& key : {extent_of("shard3", 3), extent_of("small", 0)}) {
        SCOPED_TRACE(to_string(key));
        ReaderOfShards reader;
        Node relay(relay_of(key));
        Node asker(below_relay(key));
        asker.mover.want(key, FetchFor::demand, start);
        const Decline decline = reader.declines(asker, relay).at(0);
        EXPECT_TRUE(reader.effects.reads.empty());

        asker.mover.receive(reader.membership.self(), decline, start);
        EXPECT_TRUE(asker.effects.reads.empty()) << "it did not ask that node";
        relay.mover.receive(reader.membership.self(), decline, start);
        const auto passed_on = relay.effects.take<Decline>();
        ASSERT_EQ(passed_on.size(), 1U);
        EXPECT_EQ(passed_on[0].first, std::vector{asker.membership.self()});
        EXPECT_EQ(relay.mover.pending(), 0U);
        asker.mover.receive(relay.membership.self(), passed_on[0].second, start);
        EXPECT_EQ(asker.effects.reads, std::vector{key});
        EXPECT_EQ(asker.mover.counters().unshared_reads, 1U);
        EXPECT_EQ(asker.mover.counters().direct_reads, 0U);
    }
}

TEST(MoverSending, TwoWhoWantTheSameAreNotLeftToThemselves) {
    for (const ObjectKey& key : {extent_of("shard3", 3), extent_of("small", 0)}) {
        SCOPED_TRACE(to_string(key));
        ReaderOfShards reader;
        Node relay(relay_of(key));
        Node both(below_relay(key));
        both.mover.want(key, FetchFor::demand, start);
        both.mover.receive(at(listing_key, 14), Interest{.key = key, .origin = at(listing_key, 14)}, start);
        // The reader takes them for one, and hears that it was wrong, however many nodes are in between.
        const Decline decline = reader.declines(both, relay).at(0);
        relay.mover.receive(reader.membership.self(), decline, start);
        both.mover.receive(relay.membership.self(), relay.effects.take<Decline>().at(0).second, start);
        EXPECT_TRUE(reader.declines(both, relay).empty());
        EXPECT_EQ(reader.effects.reads, std::vector{key}) << "for both";
        EXPECT_TRUE(both.effects.reads.empty());
        EXPECT_TRUE(both.effects.take<Decline>().empty());
    }
}

TEST(MoverSending, ASmallFileThatASecondNodeWantsIsReadForIt) {
    const ObjectKey key = extent_of("small", 0);
    ReaderOfShards reader;
    const auto ask = [&](std::uint32_t position) {
        const Rank node = at(listing_key, position);
        reader.mover.receive(node, Interest{.key = key, .origin = node}, start);
        return reader.effects.take<Decline>().size();
    };
    EXPECT_EQ(ask(5), 1U);
    EXPECT_EQ(ask(5), 1U) << "as often as it likes";
    EXPECT_EQ(ask(6), 0U);
    EXPECT_EQ(reader.effects.reads, std::vector{key});
    reader.mover.read_done(key, small_object(), start);
    std::set<Rank> answered;
    for (const auto& [to, publication] : reader.effects.take<Publication>()) {
        answered.insert(to.begin(), to.end());
    }
    EXPECT_TRUE(answered.contains(at(listing_key, 6)));
    EXPECT_EQ(ask(5), 0U);
    EXPECT_EQ(reader.effects.take<Publication>().at(0).first, std::vector{at(listing_key, 5)});
}

}  // namespace
}  // namespace copper
