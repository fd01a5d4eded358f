// How a node asks for objects, for itself and for others: whom, how often, and until when.
#include "collectives/mover.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/mover_fixture.hpp"

namespace copper {
namespace {

using namespace test;

TEST(MoverAsking, OneWantIsOneInterestToTheParent) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.want(listing_key, FetchFor::demand, start + 1ms);
    const auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{at(listing_key, 1)});
    EXPECT_EQ(interests[0].second.key, listing_key);
    EXPECT_EQ(interests[0].second.attempt, 0U);
    EXPECT_EQ(interests[0].second.hops, 0U);
    EXPECT_TRUE(node.effects.reads.empty());
    EXPECT_EQ(node.mover.pending(), 1U);
}

TEST(MoverAsking, EqualInterestsMerge) {
    Node node(at(listing_key, 1));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .hops = 2}, start);
    node.mover.receive(at(listing_key, 4), Interest{.key = listing_key}, start);
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.want(listing_key, FetchFor::demand, start);
    const auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{reader_of(listing_key)});
    EXPECT_EQ(interests[0].second.hops, 3U);
    EXPECT_EQ(node.mover.counters().interests_merged, 2U);

    // The answer to one node only goes to those who asked, once each.
    Publication answer = broadcast_of(listing_key, small_object(), 0, 1);
    answer.spread = Publication::Spread::asked;
    node.mover.receive(reader_of(listing_key), answer, start);
    const auto publications = node.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 1U);
    EXPECT_EQ(publications[0].first, (std::vector{at(listing_key, 3), at(listing_key, 4)}));
    EXPECT_EQ(publications[0].second.spread, Publication::Spread::asked);
    EXPECT_EQ(node.effects.delivered.size(), 1U);
    EXPECT_EQ(node.mover.pending(), 0U);
}

// It goes all the way up, once; whoever has sent the object sends nothing again.
TEST(MoverAsking, DemandThatJoinsAGuessUrgesThoseWhoWereAsked) {
    Node node(at(listing_key, 3));
    Node parent(at(listing_key, 1));
    Node reader(reader_of(listing_key));
    const auto forward = [](Node& from, Node& to) {
        std::vector<Interest> interests;
        for (const auto& [whom, interest] : from.effects.take<Interest>()) {
            EXPECT_EQ(whom, std::vector{to.membership.self()});
            to.mover.receive(from.membership.self(), interest, start);
            interests.push_back(interest);
        }
        return interests;
    };
    node.mover.want(listing_key, FetchFor::everyone, start);
    forward(node, parent);
    forward(parent, reader);
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.want(listing_key, FetchFor::demand, start);
    for (Node* one : {&node, &parent}) {
        const auto urging = forward(*one, one == &node ? parent : reader);
        ASSERT_EQ(urging.size(), 1U);
        EXPECT_TRUE(urging[0].is_urging);
        EXPECT_EQ(urging[0].why, FetchFor::demand);
        EXPECT_EQ(urging[0].attempt, 0U);
    }
    EXPECT_EQ(reader.effects.reads.size(), 1U);

    // The object and a word of haste cross on their way.
    reader.mover.read_done(listing_key, small_object(), start);
    reader.effects.take<Publication>();
    reader.mover.receive(parent.membership.self(), Interest{.key = listing_key, .is_urging = true}, start);
    EXPECT_TRUE(reader.effects.take<Publication>().empty());
    // If the first interest was lost, this one is like any other.
    reader.effects.cache.clear();
    reader.mover.receive(parent.membership.self(),
                         Interest{.key = listing_key, .seen = {1, 0}, .is_urging = true}, start);
    EXPECT_EQ(reader.effects.reads.size(), 2U);
}

TEST(MoverAsking, DemandThatJoinsDemandOrAGuessThatJoinsAnythingUrgesNobody) {
    Node node(at(listing_key, 1));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.want(listing_key, FetchFor::guess, start);
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.receive(at(listing_key, 4), Interest{.key = listing_key, .why = FetchFor::guess}, start);
    EXPECT_EQ(node.effects.take<Interest>().size(), 1U);
}

TEST(MoverAsking, AnObjectThatArrivedBeforeTheWantIsNotFetched) {
    Node node(at(listing_key, 3));
    node.effects.cache[listing_key] = small_object();
    node.mover.want(listing_key, FetchFor::demand, start);
    EXPECT_TRUE(node.effects.log.empty());
    EXPECT_EQ(node.mover.pending(), 0U);
}

TEST(MoverAsking, TheInterestTellsWhatHasArrivedByLane) {
    Node node(at(listing_key, 1));
    const Rank reader = reader_of(listing_key);
    const ObjectKey extent{ObjectKind::extent, "/app/lib/x.so", 0};
    node.mover.receive(reader, broadcast_of({ObjectKind::directory, "/app/a"}, small_object(), 1, 7), start);
    node.mover.receive(reader, broadcast_of(extent, large_object(), 2, 3), start);
    node.mover.want(listing_key, FetchFor::demand, start);
    const auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].second.seen, (Seen{7, 3}));
}

TEST(MoverAsking, AnInterestKeepsItsReasonOnItsWay) {
    for (const FetchFor why : {FetchFor::demand, FetchFor::guess, FetchFor::everyone}) {
        Node node(at(listing_key, 1), {});
        node.mover.receive(at(listing_key, 3),
                           Interest{.key = listing_key, .origin = at(listing_key, 3), .why = why}, start);
        const auto interests = node.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U);
        EXPECT_EQ(interests[0].second.why, why);
    }
}

// A node that merges the interests of two tells the reader so with its next interest.
TEST(MoverAsking, ANodeThatMergesTellsTheReader) {
    Node node(at(listing_key, 1), {});
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .origin = at(listing_key, 3)}, start);
    node.mover.receive(at(listing_key, 4), Interest{.key = listing_key, .origin = at(listing_key, 4)}, start);
    const auto first = node.effects.take<Interest>();
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first[0].second.wanted, Interest::Wanted::by_one_perhaps);
    for (const auto wanted : {Interest::Wanted::by_several, Interest::Wanted::by_one_perhaps}) {
        const ObjectKey next{ObjectKind::xattrs,
                             listing_key.path + "/x" + std::to_string(static_cast<int>(wanted))};
        node.mover.receive(at(listing_key, 3), Interest{.key = next, .origin = at(listing_key, 3)}, start);
        const auto interests = node.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U);
        EXPECT_EQ(interests[0].second.wanted, wanted) << "once";
    }
}

TEST(MoverAsking, TableOfInterestsIsBounded) {
    Node node(at(listing_key, 1), {.waiting = {.entries_max = 3}});
    for (int i = 0; i < 10; ++i) {
        node.mover.receive(at(listing_key, 3),
                           Interest{.key = {ObjectKind::directory, "/app/" + std::to_string(i)}}, start);
    }
    EXPECT_EQ(node.mover.pending(), 3U);
    EXPECT_EQ(node.mover.counters().interests_refused, 7U);
    node.mover.receive(at(listing_key, 4), Interest{.key = {ObjectKind::directory, "/app/0"}}, start);
    EXPECT_EQ(node.mover.counters().interests_merged, 1U) << "what is pending takes more askers";
}

TEST(MoverAsking, HopsAreBounded) {
    Node node(at(listing_key, 1), {.hops_max = 4});
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .hops = 5}, start);
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_TRUE(node.effects.sent.empty());
    EXPECT_EQ(node.mover.counters().interests_refused, 1U);
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .hops = 4}, start);
    EXPECT_EQ(node.mover.pending(), 1U);
}

TEST(MoverAsking, ADamagedObjectIsAskedForAgainAtOnce) {
    Node node(at(listing_key, 3));
    const Rank parent = at(listing_key, 1);
    node.mover.receive_damaged(parent, listing_key, Lane::eager, 7, start);
    EXPECT_TRUE(node.effects.sent.empty()) << "no process here wants it";
    node.mover.want(listing_key, FetchFor::demand, start);
    auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].second.seen, (Seen{7, 0})) << "the sender must not take it for in flight";
    node.mover.receive_damaged(at(listing_key, 9), listing_key, Lane::eager, 1, start);
    EXPECT_TRUE(node.effects.sent.empty()) << "another node was asked";
    node.mover.receive_damaged(parent, listing_key, Lane::eager, 8, start);
    interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{parent});
    EXPECT_EQ(interests[0].second.attempt, 1U);
    EXPECT_EQ(interests[0].second.seen, (Seen{8, 0}));
    EXPECT_EQ(node.mover.counters().corrupt, 3U);
    EXPECT_TRUE(node.effects.reads.empty());
}

// Nothing comes.

TEST(MoverAsking, ItAsksAnotherWayAndBeforeTheDeadlineReadsByItself) {
    const Rank self = at(listing_key, 7);
    Node node(self, deadline(9s));
    node.mover.want(listing_key, FetchFor::demand, start);
    EXPECT_EQ(node.effects.take<Interest>().at(0).first, std::vector{at(listing_key, 3)});
    EXPECT_EQ(node.mover.next_deadline(), start + 3s);
    node.mover.tick(start + 2999ms);
    EXPECT_TRUE(node.effects.sent.empty());

    node.mover.tick(start + 3s);
    auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{at(listing_key, 1)}) << "its grandparent";
    EXPECT_EQ(interests[0].second.attempt, 1U);

    node.mover.tick(start + 6s);
    interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{at(listing_key, 3)}) << "its parent again";
    EXPECT_EQ(interests[0].second.attempt, 2U);
    EXPECT_EQ(node.mover.counters().retries, 2U);

    node.mover.tick(start + 6749ms);
    EXPECT_TRUE(node.effects.reads.empty());
    node.mover.receive(at(listing_key, 8), Interest{.key = listing_key}, start + 6749ms);
    pass(node, start + 6750ms, start + 9s);
    node.mover.tick(start + 60s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
    EXPECT_EQ(node.mover.counters().direct_reads, 1U);

    // For itself and for those who asked it, and no one else.
    node.mover.read_done(listing_key, small_object(), start + 60s);
    const auto publications = node.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 1U);
    EXPECT_EQ(publications[0].first, std::vector{at(listing_key, 8)});
    EXPECT_EQ(publications[0].second.spread, Publication::Spread::asked);
    EXPECT_EQ(node.effects.delivered.size(), 1U);
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_FALSE(node.mover.next_deadline());
}

// Other nodes wait for answers meanwhile.
TEST(MoverAsking, ATickDoesAFewOfManyThingsThatAreDue) {
    constexpr std::size_t objects = 3000;
    const auto sent_by_ticks = [](std::uint32_t position) {
        Node node(at(listing_key, position));
        for (std::size_t i = 0; i < objects; ++i) {
            const ObjectKey key{ObjectKind::entry, listing_key.path + "/" + std::to_string(i)};
            node.mover.want(key, FetchFor::demand, start);
            node.mover.receive(at(listing_key, 3), Interest{.key = key}, start);
        }
        node.effects.sent.clear();
        const TimePoint due = node.mover.next_deadline().value();
        std::size_t sent = 0;
        while (node.mover.next_deadline().value() <= due) {
            node.mover.tick(due);
            const std::size_t sent_now = std::exchange(node.effects.sent, {}).size();
            EXPECT_GT(sent_now, 0U);
            EXPECT_LE(sent_now, 1024U);
            sent += sent_now;
        }
        return sent;
    };
    EXPECT_EQ(sent_by_ticks(1), objects) << "asks another way, in the end for all";
    EXPECT_EQ(sent_by_ticks(0), objects) << "the reader says that it works";
}

// When each node of a path turns to the filesystem, if it hears nothing.
TEST(MoverAsking, NodesNearTheReaderTurnToTheFilesystemFirst) {
    std::vector<TimePoint> begun;
    for (const std::uint32_t position : {1U, 3U, 7U}) {
        Node node(at(listing_key, position), deadline(8s));
        node.mover.want(listing_key, FetchFor::demand, start);
        TimePoint now = start;
        while (node.effects.reads.empty()) {
            node.mover.tick(now += 1ms);
        }
        begun.push_back(now);
    }
    EXPECT_GE(begun[0], start + 6s + 125ms);
    EXPECT_GE(begun[1], begun[0]);
    EXPECT_GE(begun[1], start + 6s + 250ms);
    EXPECT_GE(begun[2], start + 6s + 375ms);
    EXPECT_LE(begun[2], start + 6s + 500ms);
}

// It and the node below it want an object in vain, so it reads it.
struct DirectReader : Node {
    DirectReader() : Node(at(listing_key, 1), deadline(8s)) {
        mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
        mover.want(listing_key, FetchFor::demand, start);
        pass(*this, start, start + 8s);
        EXPECT_EQ(effects.reads, std::vector{listing_key});
    }
};

// ... and those below need not then: they are told.
TEST(MoverAsking, WhoReadsDirectlyTellsThoseWhoAskedIt) {
    DirectReader node;
    const auto words = node.effects.take<Working>();
    ASSERT_FALSE(words.empty());
    EXPECT_EQ(words[0].first, std::vector{at(listing_key, 3)});
}

TEST(MoverAsking, WhoReadsDirectlyKeepsItsOwnTroubleToItself) {
    DirectReader node;
    node.mover.read_done(listing_key, make_error(std::errc::io_error), start + 8s);
    EXPECT_EQ(node.effects.delivered.size(), 1U);
    // Not even if it is asked later: it asks on.
    node.mover.receive(at(listing_key, 4), Interest{.key = listing_key}, start + 8s);
    EXPECT_EQ(node.effects.take<Interest>().back().first, std::vector{node.reader(listing_key)});
    EXPECT_TRUE(node.effects.take<Publication>().empty());
    // What it hears then is better.
    const ObjectPtr object = small_object();
    node.mover.receive(node.reader(listing_key),
                       Publication{.key = listing_key, .root = node.reader(listing_key), .object = object},
                       start + 8s);
    EXPECT_EQ(node.effects.delivered.back(), object);
}

// Two nodes that find the same are believed, as two readers are.
TEST(MoverAsking, WhoAskedANodeInTroubleAndFindsTheSameAnswers) {
    Node asker(at(listing_key, 3));
    const Rank below = at(listing_key, 14);
    asker.mover.want(listing_key, FetchFor::demand, start);
    asker.mover.receive(below, Interest{.key = listing_key}, start);
    const Rank other = at(listing_key, 1);
    asker.mover.receive(other, Decline{.key = listing_key, .found = Finding{other, EIO}}, start);
    asker.mover.read_done(listing_key, make_error(EIO), start);
    const auto answers = asker.effects.take<Publication>();
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].first, std::vector{below});
    EXPECT_EQ(answers[0].second.object->lifetime, 2 * error_lifetime);
    EXPECT_TRUE(asker.effects.delivered.at(0)->is_for_others);
    EXPECT_TRUE(asker.effects.take<Decline>().empty());
}

TEST(MoverAsking, WhoAskedANodeInTroubleReadsAtOnce) {
    DirectReader node;
    node.mover.read_done(listing_key, make_error(std::errc::io_error), start + 8s);
    const auto declines = node.effects.take<Decline>();
    ASSERT_EQ(declines.size(), 1U);
    EXPECT_EQ(declines[0].first, std::vector{at(listing_key, 3)});

    // It has a program that waits, and so has a node below it, which asked by way of a third one.
    Node asker(at(listing_key, 3));
    Node relay(asker.children(listing_key).front());
    const Rank below = at(listing_key, 14);
    asker.mover.want(listing_key, FetchFor::demand, start);
    asker.mover.receive(relay.membership.self(), Interest{.key = listing_key}, start);
    relay.mover.receive(below, Interest{.key = listing_key}, start);
    asker.mover.receive(node.membership.self(), declines[0].second, start + 1s);
    EXPECT_EQ(asker.effects.reads, std::vector{listing_key});
    asker.mover.read_done(listing_key, make_error(ESTALE), start + 1s);
    const auto passed_on = asker.effects.take<Decline>();
    ASSERT_EQ(passed_on.size(), 1U);
    relay.mover.receive(asker.membership.self(), passed_on[0].second, start + 1s);
    EXPECT_TRUE(relay.effects.reads.empty()) << "no program of its own waits";
    EXPECT_EQ(relay.effects.take<Decline>().at(0).first, std::vector{below});
    EXPECT_EQ(relay.mover.pending(), 0U);
}

// In ascending order.
std::vector<ObjectKey> keys_that_others_read(const Node& node, std::size_t count) {
    std::vector<ObjectKey> keys;
    for (int number = 10; keys.size() < count; ++number) {
        const ObjectKey key{ObjectKind::directory, "/app/" + std::to_string(number)};
        if (node.reader(key) != node.membership.self()) {
            keys.push_back(key);
        }
    }
    return keys;
}

TEST(MoverAsking, DirectReadsAreFewAtATime) {
    Node node(at(listing_key, 3), {.deadline = 9s, .reading = {.direct_reads_max = 2}});
    for (const ObjectKey& key : keys_that_others_read(node, 5)) {
        node.mover.want(key, FetchFor::demand, start);
    }
    pass(node, start, start + 10s);
    ASSERT_EQ(node.effects.reads.size(), 2U);
    const ObjectKey read = node.effects.reads[0];
    node.mover.read_done(read, small_object(), start + 11s);
    EXPECT_EQ(node.effects.reads.size(), 3U);
    // A filesystem that hangs does not make those wait for ever that may want something of another one.
    pass(node, start + 17s, start + 18s);
    EXPECT_EQ(node.effects.reads.size(), 5U);
    EXPECT_EQ(node.mover.counters().direct_reads, 5U);
}

TEST(MoverAsking, WhatProgramsWaitForIsReadDirectlyBeforeGuesses) {
    Node node(at(listing_key, 3), {.deadline = 9s, .reading = {.direct_reads_max = 1}});
    const std::vector<ObjectKey> keys = keys_that_others_read(node, 4);
    node.mover.want(keys[0], FetchFor::demand, start);
    pass(node, start, start + 3s);
    node.mover.want(keys[1], FetchFor::guess, start + 3s);
    node.mover.want(keys[2], FetchFor::everyone, start + 3s);
    node.mover.want(keys[3], FetchFor::demand, start + 3s);
    pass(node, start + 3s, start + 13s);
    for (const std::size_t next : {0U, 3U, 1U, 2U}) {
        EXPECT_EQ(node.effects.reads.back(), keys[next]);
        node.mover.read_done(keys[next], small_object(), start + 13s);
    }
}

TEST(MoverAsking, WhatOnlyOthersWantIsDroppedAtTheDeadline) {
    Node node(at(listing_key, 1), deadline(9s));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .attempt = 1}, start + 3s);
    const auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 2U);
    EXPECT_EQ(interests[1].second.attempt, 1U);
    node.mover.tick(start + 6s);
    EXPECT_TRUE(node.effects.sent.empty());
    node.mover.tick(start + 9s);
    EXPECT_TRUE(node.effects.reads.empty()) << "those who asked have deadlines of their own";
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_FALSE(node.mover.next_deadline());
}

TEST(MoverAsking, WorkingIsPassedOnAndPutsTheDirectReadOff) {
    Node node(at(listing_key, 1), {.deadline = 9s, .waiting = {.deadlines_max = 4}});
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.effects.sent.clear();
    for (auto spent = 2s; spent < 33s; spent += 2s) {
        const Working working{.key = listing_key, .spent = spent, .still = spent};
        node.mover.tick(start + spent);
        EXPECT_TRUE(node.effects.sent.empty()) << "it asks nobody meanwhile";
        node.mover.receive(reader_of(listing_key), working, start + spent);
        const auto passed_on = node.effects.take<Working>();
        ASSERT_EQ(passed_on.size(), 1U);
        EXPECT_EQ(passed_on[0].first, std::vector{at(listing_key, 3)});
        // A message that goes round in a circle ends.
        node.mover.receive(at(listing_key, 3), working, start + spent);
        EXPECT_TRUE(node.effects.sent.empty());
    }
    node.mover.tick(start + 33s);
    EXPECT_TRUE(node.effects.reads.empty());
    // Not for ever, whatever is said.
    node.mover.tick(start + 36s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
}

TEST(MoverAsking, WorkingIsNotSentToTheNodeThatItCameFrom) {
    Node node(at(listing_key, 1));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.receive(at(listing_key, 4), Interest{.key = listing_key}, start);
    // Its view of the membership differs: it works on what it asks for here.
    node.mover.receive(at(listing_key, 3), Working{.key = listing_key, .spent = 1s}, start);
    const auto passed_on = node.effects.take<Working>();
    ASSERT_EQ(passed_on.size(), 1U);
    EXPECT_EQ(passed_on[0].first, std::vector{at(listing_key, 4)});
}

TEST(MoverAsking, WorkingThatNobodyWaitsForIsNotPassedOn) {
    Node node(at(listing_key, 1));
    node.mover.receive(reader_of(listing_key), Working{.key = listing_key}, start);
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_TRUE(node.effects.sent.empty());
}

// Nodes are lost.

constexpr std::size_t many_objects = 3000;

void want_many(Node& node) {
    for (std::size_t i = 0; i < many_objects; ++i) {
        node.mover.want({ObjectKind::entry, listing_key.path + "/" + std::to_string(i)}, FetchFor::demand,
                        start);
    }
}

TEST(MoverAsking, ALossCostsManyTurnsIfManyObjectsAreAwaited) {
    Node node(at(listing_key, 3));
    want_many(node);
    ASSERT_EQ(node.effects.take<Interest>().size(), many_objects);
    const TimePoint first_deadline = node.mover.next_deadline().value();

    node.suspect(at(listing_key, 1), start + 1s);
    std::size_t turns = 1;
    std::size_t asked_again = node.effects.take<Interest>().size();
    for (; node.mover.next_deadline().value() <= start + 1s; ++turns) {
        node.mover.tick(start + 1s);
        asked_again += node.effects.take<Interest>().size();
    }
    EXPECT_EQ(turns, 3U);
    EXPECT_EQ(asked_again, many_objects);
    EXPECT_EQ(node.mover.counters().retries, many_objects);
    EXPECT_GT(node.mover.next_deadline().value(), first_deadline)
        << "they wait for the answer to the new request";
}

TEST(MoverAsking, ALossDuringAReviewIsForAllObjects) {
    Node node(at(listing_key, 3));
    want_many(node);
    node.suspect(at(listing_key, 1), start + 1s);
    node.effects.sent.clear();
    node.suspect(reader_of(listing_key), start + 1s);
    while (node.mover.next_deadline().value() <= start + 1s) {
        node.mover.tick(start + 1s);
    }
    std::map<Rank, std::size_t> asked;
    for (const auto& [whom, interest] : node.effects.take<Interest>()) {
        ++asked[whom.at(0)];
    }
    EXPECT_EQ(asked.size(), 1U) << "all of the same way to the new reader";
    EXPECT_EQ(asked.begin()->second, many_objects);
}

TEST(MoverAsking, AllLossesOfATurnAreReviewedTogether) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.effects.sent.clear();
    for (const Rank lost : {at(listing_key, 1), reader_of(listing_key)}) {
        node.membership.suspect(lost);
        node.mover.membership_changed(start + 1s);
    }
    EXPECT_TRUE(node.effects.sent.empty());
    EXPECT_EQ(node.mover.next_deadline(), start + 1s);
    node.mover.tick(start + 1s);
    EXPECT_EQ(node.effects.take<Interest>().size(), 1U);
}

TEST(MoverAsking, OnlyWhatWasAskedOfALostNodeIsAskedForAgain) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, FetchFor::demand, start);
    ASSERT_EQ(node.effects.take<Interest>().at(0).first, std::vector{at(listing_key, 1)});
    EXPECT_EQ(node.mover.awaited(), std::set{at(listing_key, 1)});

    node.suspect(at(listing_key, 9), start + 1s);
    EXPECT_TRUE(node.effects.sent.empty()) << "it is not on the way";

    node.suspect(at(listing_key, 1), start + 2s);
    auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{reader_of(listing_key)}) << "the parent of the lost node";
    EXPECT_EQ(interests[0].second.attempt, 1U);
    EXPECT_EQ(interests[0].second.news,
              (std::vector<News>{{.rank = at(listing_key, 9), .state = NodeState::suspect},
                                 {.rank = at(listing_key, 1), .state = NodeState::suspect}}));
    EXPECT_EQ(node.mover.counters().retries, 1U);

    // It was only slow.
    node.note({.rank = at(listing_key, 1), .incarnation = 1}, start + 2s);
    interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{at(listing_key, 1)});
}

TEST(MoverAsking, TheNodeThatWasAskedHearsOfANewReader) {
    for (std::uint32_t position = 1; position < Node::size; ++position) {
        Node node(at(listing_key, position));
        node.mover.want(listing_key, FetchFor::demand, start);
        const auto asked = node.effects.take<Interest>().at(0).first;

        node.suspect(reader_of(listing_key), start + 1s);
        if (node.reader(listing_key) == node.membership.self()) {
            EXPECT_EQ(node.effects.reads, std::vector{listing_key});
            continue;
        }
        const auto interests = node.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U) << "position " << position;
        EXPECT_EQ(interests[0].second.news,
                  (std::vector<News>{{.rank = reader_of(listing_key), .state = NodeState::suspect}}));
        EXPECT_EQ(interests[0].second.attempt, interests[0].first == asked ? 0U : 1U)
            << "the object may be on its way, and must not be sent twice";
    }
}

TEST(MoverAsking, LostNodesDoNotPutOffTheDeadline) {
    Node node(at(listing_key, 3), deadline(10s));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.tick(start + 5s);
    for (const auto when : {start + 6s, start + 7s}) {
        const Rank asked = node.effects.take<Interest>().back().first.at(0);
        node.mover.tick(when);
        node.suspect(asked, when);
    }
    ASSERT_TRUE(node.effects.reads.empty());
    ASSERT_TRUE(node.mover.next_deadline());
    EXPECT_LE(*node.mover.next_deadline(), start + 10s);
    pass(node, start + 7s, start + 10s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
}

}  // namespace
}  // namespace copper
