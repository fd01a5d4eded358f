#include "collectives/spreading.hpp"

#include <gtest/gtest.h>

#include "tests/unit/mover_fixture.hpp"

namespace copper {
namespace {

using namespace test;
using Spread = Publication::Spread;
using Sent = std::vector<std::pair<std::vector<Rank>, Publication>>;

struct Sender : Place {
    explicit Sender(Rank self = reader_of(listing_key), Spreading::Options options = {.push = Push::always})
        : Place(self), spreading(options, membership, effects) {}

    void note(const ObjectKey& key, Rank origin, FetchFor why = FetchFor::demand) {
        spreading.note_use(key, origin, Interest::Wanted::by_one_perhaps, why);
    }
    Sent publish(const ObjectKey& key, const std::vector<Rank>& askers = {},
                 const ObjectPtr& object = small_object()) {
        spreading.publish(key, object, askers);
        return effects.take<Publication>();
    }
    // To how many nodes the reader sends what it reads because `origin` asked for it.
    std::size_t addressees(const ObjectKey& key, Rank asker, Rank origin) {
        note(key, origin);
        const std::uint64_t before = spreading.counters().publications_sent;
        std::size_t count = 0;
        for (const auto& [to, publication] : publish(key, {asker})) {
            count += to.size();
        }
        EXPECT_EQ(spreading.counters().publications_sent - before, count);
        return count;
    }
    Sent forward(const Publication& publication, const std::vector<Rank>& askers = {},
                 Rank from = reader_of(listing_key)) {
        spreading.forward(from, publication, askers);
        return effects.take<Publication>();
    }

    Spreading spreading;
};

Publication broadcast(std::uint64_t serial) {
    return broadcast_of(listing_key, small_object(), serial, serial);
}

std::uint64_t backlog_skipped(std::uint64_t to_child, std::uint64_t to_others, bool child_has_asked = false) {
    Sender reader;
    const Rank child = reader.children(listing_key).at(0);
    reader.effects.backlogs[child] = to_child;
    reader.effects.backlogs[Rank{1000}] = to_others;
    const Sent sent = reader.publish(listing_key, child_has_asked ? std::vector{child} : std::vector<Rank>());
    EXPECT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent.at(0).first.size() + reader.spreading.counters().passed_over, 2U);
    return reader.spreading.counters().passed_over;
}

TEST(Spreading, ABroadcastGoesToTheNodesBelowAndToThoseWhoAskedBesides) {
    Sender reader;
    const auto children = reader.children(listing_key);
    const ObjectPtr object = small_object();
    const Sent sent = reader.publish(listing_key, {children[0], at(listing_key, 9)}, object);
    ASSERT_EQ(sent.size(), 2U);
    EXPECT_EQ(sent[0].first, children);
    EXPECT_EQ(sent[0].second.spread, Spread::everyone);
    EXPECT_EQ(sent[0].second.key, listing_key);
    EXPECT_EQ(sent[0].second.root, reader.membership.self());
    EXPECT_EQ(sent[0].second.tree, reader.route(listing_key).tree);
    EXPECT_EQ(sent[0].second.object, object);
    EXPECT_EQ(sent[1].first, std::vector{at(listing_key, 9)}) << "once each";
    EXPECT_EQ(sent[1].second.spread, Spread::asked);
    EXPECT_EQ(sent[1].second.object, object);
    EXPECT_EQ(reader.spreading.counters().publications_sent, 3U);
}

TEST(Spreading, ObjectsCarryNews) {
    Sender reader;
    reader.membership.suspect(at(listing_key, 9));
    EXPECT_EQ(reader.publish(listing_key).at(0).second.news,
              (std::vector<News>{{.rank = at(listing_key, 9), .state = NodeState::suspect}}));
}

TEST(Spreading, WhatAllHaveHadGoesToThoseWhoAskOnly) {
    Sender reader;
    reader.publish(listing_key);
    const Rank asker = at(listing_key, 2);
    const Sent sent = reader.publish(listing_key, {asker});
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].first, std::vector{asker}) << "the others may not want it any more";
    EXPECT_EQ(sent[0].second.spread, Spread::asked);
    EXPECT_TRUE(reader.publish(listing_key).empty());
}

TEST(Spreading, WhatExpiresIsBroadcastAgain) {
    Sender reader;
    std::uint64_t serial = 0;
    for (int round = 0; round < 3; ++round) {
        const Sent sent = reader.publish(listing_key, {}, make_error(std::errc::permission_denied));
        ASSERT_EQ(sent.size(), 1U);
        EXPECT_EQ(sent[0].second.spread, Spread::everyone);
        EXPECT_GT(sent[0].second.serial, serial);
        serial = sent[0].second.serial;
    }
}

// A new reader does not know which nodes the first one has reached.
TEST(Spreading, WhatAnotherNodeBroadcastIsBroadcastByANewReader) {
    Sender node(at(listing_key, 1));
    EXPECT_EQ(node.forward(broadcast(5)).size(), 1U);
    EXPECT_EQ(node.publish(listing_key).at(0).second.spread, Spread::everyone);
}

TEST(Spreading, LanesKeepSeparateSequences) {
    Sender reader;
    std::vector<std::pair<Lane, std::uint64_t>> sequences;
    for (std::uint32_t i = 0; i < 4; ++i) {
        const Sent sent =
            reader.publish(extent_of(std::to_string(i), 0), {}, i % 2 == 0 ? small_object() : large_object());
        sequences.emplace_back(sent.at(0).second.lane, sent.at(0).second.sequence);
        EXPECT_TRUE(reader.publish(extent_of(std::to_string(i), 0)).empty()) << "no number for no message";
    }
    EXPECT_EQ(sequences, (std::vector<std::pair<Lane, std::uint64_t>>{
                             {Lane::eager, 1}, {Lane::bulk, 1}, {Lane::eager, 2}, {Lane::bulk, 2}}));
}

TEST(Spreading, AnObjectIsInFlightUntilItsSequenceHasArrived) {
    Sender reader;
    const Rank child = reader.children(listing_key).at(0);
    EXPECT_FALSE(reader.spreading.is_in_flight(listing_key, child, {0, 0}));
    reader.publish(extent_of("before", 0));
    const auto sequence = reader.publish(listing_key).at(0).second.sequence;
    ASSERT_EQ(sequence, 2U);
    EXPECT_TRUE(reader.spreading.is_in_flight(listing_key, child, {sequence - 1, 99}))
        << "the other lane says nothing";
    EXPECT_FALSE(reader.spreading.is_in_flight(listing_key, child, {sequence, 0})) << "it has arrived";
    EXPECT_FALSE(reader.spreading.is_in_flight(listing_key, at(listing_key, 9), {0, 0}))
        << "that node was not among the addressees";

    const ObjectKey large = extent_of("large", 0);
    ASSERT_EQ(reader.publish(large, {}, large_object()).at(0).second.sequence, 1U);
    const Rank below = reader.children(large).at(0);
    EXPECT_TRUE(reader.spreading.is_in_flight(large, below, {99, 0}));
    EXPECT_FALSE(reader.spreading.is_in_flight(large, below, {0, 1}));
}

TEST(Spreading, RemembersWhatArrivedByNodeAndLane) {
    Sender node(at(listing_key, 1));
    const Rank from = reader_of(listing_key);
    node.spreading.note_received(from, Lane::eager, 7);
    node.spreading.note_received(from, Lane::bulk, 3);
    node.spreading.note_received(from, Lane::eager, 5);
    node.spreading.note_received(at(listing_key, 3), Lane::bulk, 9);
    EXPECT_EQ(node.spreading.received_from(from), (Seen{7, 3}));
    EXPECT_EQ(node.spreading.received_from(at(listing_key, 3)), (Seen{0, 9}));
    EXPECT_EQ(node.spreading.received_from(at(listing_key, 4)), (Seen{0, 0}));
}

TEST(Spreading, ABroadcastIsForwardedOnce) {
    Sender node(at(listing_key, 1));
    const Sent sent = node.forward(broadcast(5));
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].first, (std::vector{at(listing_key, 3), at(listing_key, 4)}));
    EXPECT_EQ(sent[0].second.spread, Spread::everyone);
    EXPECT_EQ(sent[0].second.serial, 5U);
    EXPECT_EQ(sent[0].second.root, reader_of(listing_key));

    EXPECT_TRUE(node.forward(broadcast(5)).empty());
    EXPECT_TRUE(node.forward(broadcast(4)).empty());
    const Sent repeated = node.forward(broadcast(5), {at(listing_key, 9)});
    ASSERT_EQ(repeated.size(), 1U) << "whoever asked has an answer all the same";
    EXPECT_EQ(repeated[0].first, std::vector{at(listing_key, 9)});
    EXPECT_EQ(repeated[0].second.spread, Spread::asked);

    EXPECT_EQ(node.forward(broadcast(6)).size(), 1U) << "published anew, after a refresh";
    Publication others = broadcast(1);
    others.root = at(listing_key, 2);
    EXPECT_EQ(node.forward(others).size(), 1U) << "each node has serials of its own";
}

TEST(Spreading, ABroadcastIsNotSentBackToWhereItCameFrom) {
    Sender node(at(listing_key, 1));
    // Its view of the membership differs: it is a child here.
    EXPECT_EQ(node.forward(broadcast(5), {}, at(listing_key, 3)).at(0).first,
              std::vector{at(listing_key, 4)});
}

TEST(Spreading, AnAnswerGoesToThoseWhoAskedOnly) {
    Sender node(at(listing_key, 1));
    Publication answer = broadcast(0);
    answer.spread = Spread::asked;
    EXPECT_TRUE(node.forward(answer).empty());
    const Sent sent = node.forward(answer, {at(listing_key, 9)});
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].first, std::vector{at(listing_key, 9)});
    EXPECT_EQ(sent[0].second.spread, Spread::asked);
    EXPECT_EQ(sent[0].second.root, node.membership.self());
}

TEST(Spreading, ForgetsTheOldestBroadcastsWhichCostsRepeatsOnly) {
    Sender node(at(listing_key, 1), {.push = Push::always, .broadcasts_remembered_max = 2});
    const auto forward = [&node](std::uint64_t number) {
        const ObjectKey key = extent_of(std::to_string(number), 0);
        return node.forward(broadcast_of(key, small_object(), number, number)).size();
    };
    for (std::uint64_t number = 1; number <= 5; ++number) {
        EXPECT_EQ(forward(number), 1U);
        EXPECT_EQ(forward(number), 0U);
    }
    EXPECT_EQ(forward(4), 0U);
    EXPECT_EQ(forward(1), 1U);
}

TEST(Spreading, SlowNodesLeaveRoomForOthers) {
    constexpr std::uint64_t mebibyte = 1U << 20;
    EXPECT_EQ(backlog_skipped(15 * mebibyte, 0), 0U);
    EXPECT_EQ(backlog_skipped(17 * mebibyte, 0), 1U);
    EXPECT_EQ(backlog_skipped(15 * mebibyte, 30 * mebibyte), 1U) << "3 MiB are left of 48";
    EXPECT_EQ(backlog_skipped(2 * mebibyte, 30 * mebibyte), 0U);
    EXPECT_EQ(backlog_skipped(0, 100 * mebibyte), 0U) << "a node to which nothing is on its way";
    EXPECT_EQ(backlog_skipped(17 * mebibyte, 100 * mebibyte, true), 0U) << "a node that asks has room";
}

TEST(Spreading, ALargeFileIsSentToThoseWhoAskUntilItIsShared) {
    Sender reader(reader_of(listing_key), {});
    for (std::uint32_t index = 1; index <= 5; ++index) {
        const ObjectKey key = extent_of("x.so", index);
        // Three nodes of 15 make a shared file of it.
        EXPECT_EQ(reader.addressees(key, below_relay(key), Rank{index}), index < 3 ? 1U : 2U) << index;
    }
    const ObjectKey key = extent_of("y.so", 1);
    EXPECT_EQ(Sender().addressees(key, below_relay(key), Rank{1}), 2U) << "pushing always";
    Sender never(reader_of(listing_key), {.push = Push::never});
    EXPECT_EQ(never.addressees(listing_key, at(listing_key, 9), Rank{1}), 1U);
}

// What one node does costs one node.
TEST(Spreading, WhatOneNodeUsesGoesToThatNodeAlone) {
    Sender reader(reader_of(listing_key), {});
    const Rank node = at(listing_key, 1);
    EXPECT_EQ(reader.addressees(listing_key, node, node), 1U);
    for (std::uint32_t number = 0; number < 200; ++number) {
        ASSERT_EQ(reader.addressees(extent_of(std::to_string(number), 0), node, node), 1U) << number;
    }
}

TEST(Spreading, WhatSeveralNodesUseIsPushedToAll) {
    Sender reader(reader_of(listing_key), {});
    const std::vector<Rank> nodes = reader.children(listing_key);
    EXPECT_EQ(reader.addressees(listing_key, nodes[0], nodes[0]), 1U);
    reader.note(listing_key, nodes[1]);
    // Both use its names: so the first files go to both.
    EXPECT_EQ(reader.addressees(extent_of("a", 0), nodes[0], nodes[0]), 2U);
}

TEST(Spreading, WhatOneNodeAloneGoesOnUsingIsPushedNoLonger) {
    Sender reader(reader_of(listing_key), {});
    const std::vector<Rank> nodes = reader.children(listing_key);
    reader.note(listing_key, nodes[0]);
    reader.note(listing_key, nodes[1]);
    for (std::uint32_t number = 0; number < 8; ++number) {
        const ObjectKey key = extent_of(std::to_string(number), 0);
        EXPECT_EQ(reader.addressees(key, nodes[0], nodes[0]), number < 4 ? 2U : 1U) << number;
    }
}

TEST(Spreading, WhatEveryoneWillUseIsPushed) {
    for (const std::uint32_t index : {0U, 5U}) {
        const ObjectKey key = extent_of("library", index);
        Sender reader(reader_of(key), {});
        reader.note(key, Rank{1}, FetchFor::guess);
        EXPECT_TRUE(reader.publish(key).empty()) << "a guess is one node's";
        reader.note(key, Rank{1}, FetchFor::everyone);
        const Sent sent = reader.publish(key);
        ASSERT_EQ(sent.size(), 1U);
        EXPECT_EQ(sent[0].second.spread, Spread::everyone) << "extent " << index;
    }
}

TEST(Spreading, EvidenceOfSeveralNodesIsToldOnce) {
    Sender node(at(listing_key, 1), {});
    node.note(listing_key, at(listing_key, 3));
    EXPECT_EQ(node.spreading.wanted(listing_key), Interest::Wanted::by_one_perhaps);
    node.note(listing_key, at(listing_key, 4));
    const ObjectKey next{ObjectKind::xattrs, listing_key.path + "/x"};
    EXPECT_EQ(node.spreading.wanted(next), Interest::Wanted::by_several);
    EXPECT_EQ(node.spreading.wanted(next), Interest::Wanted::by_one_perhaps);

    Sender other(at(listing_key, 1), {});
    other.spreading.note_use(listing_key, at(listing_key, 3), Interest::Wanted::by_several, FetchFor::demand);
    EXPECT_EQ(other.spreading.wanted(next), Interest::Wanted::by_several) << "an asker said so";
}

TEST(Spreading, AFileThatNobodySharesIsItsAskersOwn) {
    for (const Push push : {Push::automatic, Push::always, Push::never}) {
        Sender reader(reader_of(listing_key), {.push = push});
        EXPECT_FALSE(reader.spreading.is_own(extent_of("small", 0))) << "unknown";
        // Nodes 1 and 2 read small files by turns.
        for (std::uint32_t number = 0; number < 500; ++number) {
            reader.addressees(extent_of(std::to_string(number), 0), Rank{1 + number % 2},
                              Rank{1 + number % 2});
        }
        EXPECT_EQ(reader.spreading.is_own(extent_of("small", 0)), push == Push::automatic);
    }
}

}  // namespace
}  // namespace copper
