#include "collectives/mover.hpp"

#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <variant>

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint start{1h};
const Trees trees({"/app"});
const ObjectKey listing_key{ObjectKind::directory, "/app/lib"};

ObjectPtr small_object(int number = 1) {
    return make_object(Xattrs{{"user.number", std::to_string(number)}});
}

ObjectPtr large_object() {
    return make_object(
        Extent{.attributes = {}, .blob = {std::make_shared<std::byte[]>(extent_bytes), extent_bytes}});
}

// What a Mover did, in order; nothing happens by itself.
class Recorder final : public Mover::Effects {
  public:
    struct Sent {
        std::vector<Rank> to;
        Message message;
    };

    ObjectPtr find(const ObjectKey& key) override {
        const auto entry = cache.find(key);
        return entry == cache.end() ? nullptr : entry->second;
    }
    void deliver(const ObjectKey& key, const ObjectPtr& object) override {
        log.push_back("deliver");
        delivered.push_back(object);
        if (keeps) {
            cache[key] = object;
        }
    }
    void read(const ObjectKey& key, ReadFor whom) override {
        read_for = whom;
        log.push_back("read");
        reads.push_back(key);
    }
    void send(std::span<const Rank> to, const Message& message) override {
        log.push_back("send");
        sent.push_back({{to.begin(), to.end()}, message});
    }

    std::uint64_t backlog_bytes(Rank to) override { return backlogs[to]; }
    std::uint64_t backlog_bytes() override {
        return std::accumulate(backlogs.begin(), backlogs.end(), std::uint64_t{0},
                               [](std::uint64_t sum, const auto& backlog) { return sum + backlog.second; });
    }

    template <typename T>
    std::vector<std::pair<std::vector<Rank>, T>> take() {
        std::vector<std::pair<std::vector<Rank>, T>> taken;
        for (const Sent& one : sent) {
            if (const T* message = std::get_if<T>(&one.message)) {
                taken.emplace_back(one.to, *message);
            }
        }
        std::erase_if(sent, [](const Sent& one) { return std::holds_alternative<T>(one.message); });
        return taken;
    }

    bool keeps = true;
    std::map<Rank, std::uint64_t> backlogs;
    ReadFor read_for = ReadFor::itself;
    std::map<ObjectKey, ObjectPtr> cache;
    std::vector<std::string> log;
    std::vector<ObjectKey> reads;
    std::vector<ObjectPtr> delivered;
    std::vector<Sent> sent;
};

// Whoever reads pushes to all, unless a test is about whom objects are pushed to.
struct Node {
    static constexpr std::uint32_t default_size = 15;

    explicit Node(Rank self, Mover::Options options = {.spreading = {.push = Push::always}})
        : membership({.size = default_size, .self = self, .arity = 2, .readers = 4}),
          mover(options, trees, membership, effects) {}

    Route route(const ObjectKey& key) const { return membership.route(file_tree_of(key), turn_of(key)); }
    Rank reader(const ObjectKey& key) const { return route(key).reader; }
    std::vector<Rank> children(const ObjectKey& key) const { return membership.children(route(key)); }
    void suspect(Rank rank, TimePoint now) {
        membership.suspect(rank);
        mover.membership_changed(now);
    }
    void note(const News& news, TimePoint now) {
        membership.note(news);
        mover.membership_changed(now);
    }

    Membership membership;
    Recorder effects;
    Mover mover;
};

// Pushing, with a deadline.
Mover::Options deadline(std::chrono::milliseconds time) {
    return {.deadline = time, .spreading = {.push = Push::always}};
}

Rank reader_of(const ObjectKey& key) {
    return Node(Rank{0}).reader(key);
}

// The place `position` steps of the ring away from the reader: position 1 and 2 are its children, 3 to 6
// theirs.
Rank at(const ObjectKey& key, std::uint32_t position) {
    return Rank{(reader_of(key).value + position) % Node::default_size};
}

Publication broadcast_of(const ObjectKey& key, ObjectPtr object, std::uint64_t serial,
                         std::uint64_t sequence) {
    return {.key = key,
            .root = reader_of(key),
            .tree = Node(Rank{0}).route(key).tree,
            .spread = Publication::Spread::everyone,
            .serial = serial,
            .sequence = sequence,
            .lane = object->bytes() > eager_body_bytes_max ? Lane::bulk : Lane::eager,
            .object = object};
}

TEST(Mover, OneWantIsOneInterestToTheParent) {
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

TEST(Mover, OneWantIsOneReadAtTheReaderThenABroadcast) {
    Node node(reader_of(listing_key));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.want(listing_key, FetchFor::demand, start);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
    EXPECT_TRUE(node.effects.sent.empty());

    const ObjectPtr object = small_object();
    node.mover.read_done(listing_key, object, start);
    const auto publications = node.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 1U);
    EXPECT_EQ(publications[0].first, node.children(listing_key));
    EXPECT_EQ(publications[0].second.spread, Publication::Spread::everyone);
    EXPECT_EQ(publications[0].second.root, node.membership.self());
    EXPECT_EQ(publications[0].second.object, object);
    EXPECT_EQ(node.effects.delivered, std::vector{object});
    EXPECT_EQ(node.effects.log, (std::vector<std::string>{"read", "send", "deliver"}));
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_EQ(node.mover.counters().direct_reads, 0U);
    EXPECT_FALSE(node.mover.next_deadline());
}

TEST(Mover, EqualInterestsMerge) {
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

TEST(Mover, AnswersFromTheCache) {
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

TEST(Mover, AnInterestThatCrossesTheBroadcastIsNotAnsweredTwice) {
    Node node(reader_of(listing_key));
    const Rank child = node.children(listing_key).front();
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.read_done(listing_key, small_object(), start);
    const auto sequence = node.effects.take<Publication>().at(0).second.sequence;
    ASSERT_EQ(sequence, 1U);

    node.mover.receive(child, Interest{.key = listing_key, .seen = {sequence - 1, 99}}, start);
    EXPECT_TRUE(node.effects.sent.empty()) << "it is still on its way to that node";

    node.mover.receive(child, Interest{.key = listing_key, .seen = {sequence, 0}}, start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U) << "it arrived, and was evicted there";

    node.mover.receive(child, Interest{.key = listing_key, .attempt = 1}, start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U) << "it waited in vain";

    node.mover.receive(at(listing_key, 9), Interest{.key = listing_key}, start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U) << "it was not among the addressees";
}

TEST(Mover, TheInterestTellsWhatHasArrivedByLane) {
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

TEST(Mover, LanesKeepSeparateSequences) {
    Node node(reader_of(listing_key));
    std::vector<std::pair<Lane, std::uint64_t>> sequences;
    for (int i = 0; i < 4; ++i) {
        const ObjectKey key{ObjectKind::extent, listing_key.path + "/" + std::to_string(i)};
        node.mover.want(key, FetchFor::demand, start);
        node.mover.read_done(key, i % 2 == 0 ? small_object() : large_object(), start);
    }
    for (const auto& [to, publication] : node.effects.take<Publication>()) {
        sequences.emplace_back(publication.lane, publication.sequence);
    }
    EXPECT_EQ(sequences, (std::vector<std::pair<Lane, std::uint64_t>>{
                             {Lane::eager, 1}, {Lane::bulk, 1}, {Lane::eager, 2}, {Lane::bulk, 2}}));
}

TEST(Mover, ABroadcastIsForwardedBeforeItIsUsedAndOnce) {
    Node node(at(listing_key, 1));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.receive(at(listing_key, 9), Interest{.key = listing_key}, start);
    node.effects.sent.clear();
    node.effects.log.clear();

    const Publication publication = broadcast_of(listing_key, small_object(), 5, 1);
    node.mover.receive(reader_of(listing_key), publication, start);
    EXPECT_EQ(node.effects.log, (std::vector<std::string>{"send", "send", "deliver"}));
    const auto publications = node.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 2U);
    EXPECT_EQ(publications[0].first, (std::vector{at(listing_key, 3), at(listing_key, 4)}));
    EXPECT_EQ(publications[0].second.spread, Publication::Spread::everyone);
    EXPECT_EQ(publications[0].second.serial, 5U);
    EXPECT_EQ(publications[1].first, std::vector{at(listing_key, 9)}) << "asked, though it is no child";
    EXPECT_EQ(publications[1].second.spread, Publication::Spread::asked);

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

TEST(Mover, ANodeThatHoldsTheObjectForwardsItAllTheSame) {
    Node node(at(listing_key, 1));
    const ObjectPtr first = small_object(1);
    node.effects.cache[listing_key] = first;
    node.mover.receive(reader_of(listing_key), broadcast_of(listing_key, small_object(2), 5, 1), start);
    EXPECT_EQ(node.effects.take<Publication>().size(), 1U);
    EXPECT_TRUE(node.effects.delivered.empty()) << "the first version stays";
    EXPECT_EQ(node.mover.counters().duplicates, 1U);
}

TEST(Mover, TheObjectIsNotSentBackToWhereItCameFrom) {
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

// Lets time pass until then, in steps of a millisecond.
void pass(Node& node, TimePoint from, TimePoint until) {
    for (TimePoint now = from; now <= until; now += 1ms) {
        node.mover.tick(now);
    }
}

TEST(Mover, ItAsksAnotherWayAndBeforeTheDeadlineReadsByItself) {
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

// When each node of a path turns to the filesystem, if it hears nothing.
TEST(Mover, NodesNearTheReaderTurnToTheFilesystemFirst) {
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

// ... and those below need not then: they are told.
TEST(Mover, WhoReadsDirectlyTellsThoseWhoAskedIt) {
    Node node(at(listing_key, 1), deadline(8s));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.want(listing_key, FetchFor::demand, start);
    pass(node, start, start + 8s);
    ASSERT_EQ(node.effects.reads.size(), 1U);
    const auto words = node.effects.take<Working>();
    ASSERT_FALSE(words.empty());
    EXPECT_EQ(words[0].first, std::vector{at(listing_key, 3)});
}

TEST(Mover, DirectReadsAreFewAtATime) {
    Node node(at(listing_key, 3), {.deadline = 9s, .reading = {.direct_reads_max = 2}});
    const auto key = [](int i) { return ObjectKey{ObjectKind::directory, "/app/" + std::to_string(i)}; };
    int wanted = 0;
    for (int i = 0; wanted < 5; ++i) {
        if (node.reader(key(i)) != node.membership.self()) {
            node.mover.want(key(i), FetchFor::demand, start);
            ++wanted;
        }
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

TEST(Mover, AReaderSaysFourTimesADeadlineThatItReads) {
    Node reader(reader_of(listing_key), deadline(8s));
    reader.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
    std::chrono::milliseconds spent(0);
    for (int i = 1; i <= 30; ++i) {
        reader.mover.tick(start + i * 2s - 1ms);
        EXPECT_TRUE(reader.effects.take<Working>().empty());
        reader.mover.tick(start + i * 2s);
        const auto words = reader.effects.take<Working>();
        ASSERT_EQ(words.size(), 1U);
        EXPECT_EQ(words[0].first, std::vector{at(listing_key, 1)});
        EXPECT_GT(words[0].second.spent, spent);
        spent = words[0].second.spent;
    }
    // A node that has waited in vain is told at once.
    reader.mover.receive(at(listing_key, 4), Interest{.key = listing_key, .attempt = 1}, start + 61s);
    const auto words = reader.effects.take<Working>();
    ASSERT_EQ(words.size(), 1U);
    EXPECT_EQ(words[0].first, std::vector{at(listing_key, 4)});
    EXPECT_EQ(reader.effects.reads.size(), 1U);
}

TEST(Mover, WordOfWorkPutsTheDeadlineOffAndIsPassedOn) {
    Node node(at(listing_key, 1), {.deadline = 9s, .waiting = {.deadlines_max = 4}});
    node.mover.want(listing_key, FetchFor::demand, start);
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.effects.sent.clear();
    TimePoint now = start;
    for (int i = 1; i <= 15; ++i) {
        pass(node, now, now + 2s);
        now += 2s;
        EXPECT_TRUE(node.effects.sent.empty()) << "it asks nobody meanwhile";
        const Working working{.key = listing_key, .spent = i * 2s};
        node.mover.receive(reader_of(listing_key), working, now);
        const auto passed_on = node.effects.take<Working>();
        ASSERT_EQ(passed_on.size(), 1U);
        EXPECT_EQ(passed_on[0].first, std::vector{at(listing_key, 3)});
        // A message that goes round in a circle ends.
        node.mover.receive(at(listing_key, 3), working, now);
        EXPECT_TRUE(node.effects.sent.empty());
    }
    ASSERT_EQ(now, start + 30s);
    pass(node, now, start + 33s);
    EXPECT_TRUE(node.effects.reads.empty());
    for (int i = 16; i <= 18; ++i) {
        now = start + i * 2s - 1ms;
        node.mover.receive(reader_of(listing_key), Working{.key = listing_key, .spent = i * 2s}, now);
        node.mover.tick(now);
    }
    // Not for ever, whatever is said.
    node.mover.tick(start + 36s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
}

TEST(Mover, WordOfWorkThatNobodyWaitsForIsNoNews) {
    Node node(at(listing_key, 1));
    node.mover.receive(reader_of(listing_key), Working{.key = listing_key}, start);
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_TRUE(node.effects.sent.empty());
}

TEST(Mover, WhatOnlyOthersWantIsDroppedAtTheDeadline) {
    Node node(at(listing_key, 1), deadline(9s));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.tick(start + 3s);
    EXPECT_EQ(node.effects.take<Interest>().size(), 2U);
    node.mover.tick(start + 6s);
    node.mover.tick(start + 9s);
    EXPECT_TRUE(node.effects.reads.empty()) << "those who asked have deadlines of their own";
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_FALSE(node.mover.next_deadline());
}

TEST(Mover, AWantThatJoinsAnOldInterestHasItsWholeTime) {
    Node node(at(listing_key, 1), deadline(9s));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.tick(start + 3s);
    node.mover.want(listing_key, FetchFor::demand, start + 8s);
    node.mover.tick(start + 9s);
    EXPECT_EQ(node.mover.pending(), 1U);
    EXPECT_EQ(node.mover.next_deadline(), start + 11s);
    pass(node, start + 9s, start + 14s);
    EXPECT_TRUE(node.effects.reads.empty());
    pass(node, start + 14s, start + 17s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
}

TEST(Mover, ADamagedObjectIsAskedForAgainAtOnce) {
    Node node(at(listing_key, 3));
    const Rank parent = at(listing_key, 1);
    node.mover.receive_damaged(parent, listing_key, Lane::eager, 7, start);
    EXPECT_TRUE(node.effects.sent.empty()) << "no process here wants it";
    node.mover.want(listing_key, FetchFor::demand, start);
    auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].second.seen, (Seen{7, 0})) << "the sender must not take it for in flight";
    node.mover.receive_damaged(parent, listing_key, Lane::eager, 8, start);
    interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{parent});
    EXPECT_EQ(interests[0].second.attempt, 1U);
    EXPECT_EQ(interests[0].second.seen, (Seen{8, 0}));
    EXPECT_EQ(node.mover.counters().corrupt, 2U);
    EXPECT_TRUE(node.effects.reads.empty());
}

TEST(Mover, OnlyWhatWasAskedOfALostNodeIsAskedForAgain) {
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

TEST(Mover, TheNodeThatWasAskedHearsOfANewReader) {
    for (std::uint32_t position = 1; position < Node::default_size; ++position) {
        Node node(at(listing_key, position));
        node.mover.want(listing_key, FetchFor::demand, start);
        node.effects.take<Interest>();

        node.suspect(reader_of(listing_key), start + 1s);
        if (node.reader(listing_key) == node.membership.self()) {
            EXPECT_EQ(node.effects.reads, std::vector{listing_key});
            continue;
        }
        const auto interests = node.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U) << "position " << position;
        EXPECT_EQ(interests[0].second.news,
                  (std::vector<News>{{.rank = reader_of(listing_key), .state = NodeState::suspect}}));
    }
}

TEST(Mover, TheLastNodeReadsInTheOfficeOfAll) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, FetchFor::demand, start);
    for (std::uint32_t rank = 0; rank < Node::default_size; ++rank) {
        if (Rank{rank} != node.membership.self()) {
            node.suspect(Rank{rank}, start + 1s);
        }
    }
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
    EXPECT_EQ(node.mover.counters().direct_reads, 0U) << "it is the reader";
    node.mover.read_done(listing_key, small_object(), start + 1s);
    EXPECT_EQ(node.effects.delivered.size(), 1U);
}

TEST(Mover, ALostAskerIsNotAnswered) {
    Node node(reader_of(listing_key));
    const Rank asker = at(listing_key, 9);
    node.mover.receive(asker, Interest{.key = listing_key}, start);
    node.note({.rank = asker, .state = NodeState::dead}, start);
    node.mover.read_done(listing_key, small_object(), start);
    for (const auto& [to, publication] : node.effects.take<Publication>()) {
        EXPECT_EQ(std::count(to.begin(), to.end(), asker), 0);
    }
}

// However many nodes are lost, and whenever: the application does not wait past its deadline.
TEST(Mover, LostPeersDoNotPutOffTheDeadline) {
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

TEST(Mover, TableOfInterestsIsBounded) {
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

TEST(Mover, HopsAreBounded) {
    Node node(at(listing_key, 1), {.hops_max = 4});
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .hops = 5}, start);
    EXPECT_EQ(node.mover.pending(), 0U);
    EXPECT_TRUE(node.effects.sent.empty());
    EXPECT_EQ(node.mover.counters().interests_refused, 1U);
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key, .hops = 4}, start);
    EXPECT_EQ(node.mover.pending(), 1U);
}

TEST(Mover, WhatIsNotSharedIsReadHereAndNeverSentOrAnswered) {
    for (const ObjectKey& key : {ObjectKey{ObjectKind::directory, "/home/me"},
                                 ObjectKey{ObjectKind::own_extent, listing_key.path + "/large"}}) {
        Node node(Rank{3});
        node.mover.want(key, FetchFor::demand, start);
        EXPECT_EQ(node.effects.reads, std::vector{key});
        node.mover.read_done(key, small_object(), start);
        EXPECT_EQ(node.effects.delivered.size(), 1U);
        node.mover.receive(Rank{4}, Interest{.key = key}, start);
        EXPECT_TRUE(node.effects.sent.empty());
        EXPECT_EQ(node.mover.counters().interests_refused, 1U);
        EXPECT_EQ(node.mover.counters().direct_reads, 0U);
        EXPECT_EQ(node.mover.pending(), 0U);
    }
}

TEST(Mover, ABroadcastThatOvertakesADirectReadStays) {
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

TEST(Mover, AnObjectThatArrivedBeforeTheWantIsNotFetched) {
    Node node(at(listing_key, 3));
    node.effects.cache[listing_key] = small_object();
    node.mover.want(listing_key, FetchFor::demand, start);
    EXPECT_TRUE(node.effects.log.empty());
    EXPECT_EQ(node.mover.pending(), 0U);
}

TEST(Mover, AnExpiredErrorIsAskedForAgainAllTheWay) {
    Node reader(reader_of(listing_key));
    Node child(at(listing_key, 1));
    std::uint64_t serial = 0;
    for (int round = 0; round < 3; ++round) {
        const TimePoint now = start + round * 2s;
        child.mover.want(listing_key, FetchFor::demand, now);
        const auto interests = child.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U) << "round " << round;
        reader.mover.receive(child.membership.self(), interests[0].second, now);
        ASSERT_EQ(reader.effects.reads.size(), static_cast<std::size_t>(round) + 1);
        reader.mover.read_done(listing_key, make_error(std::errc::permission_denied), now);
        const auto publications = reader.effects.take<Publication>();
        ASSERT_EQ(publications.size(), 1U);
        EXPECT_GT(publications[0].second.serial, serial);
        serial = publications[0].second.serial;
        child.mover.receive(reader.membership.self(), publications[0].second, now);
        ASSERT_EQ(child.effects.delivered.size(), static_cast<std::size_t>(round) + 1);
        EXPECT_EQ(child.effects.take<Publication>().size(), 1U) << "forwarded anew";
        // Both caches let it expire.
        reader.effects.cache.clear();
        child.effects.cache.clear();
    }
}

// The reader, whose read has failed with what may be the fault of its own mount, and the next reader, which
// it has asked.
struct BrokenReader : Node {
    explicit BrokenReader(ObjectPtr met = make_error(EIO))
        : Node(reader_of(listing_key), deadline(10s)),
          next(membership.next_reader(listing_key.path, std::vector{membership.self()}).value(),
               deadline(10s)) {
        mover.receive(at(listing_key, 2), Interest{.key = listing_key}, start);
        mover.read_done(listing_key, met, start);
        EXPECT_TRUE(effects.delivered.empty());
        EXPECT_TRUE(effects.take<Publication>().empty());
        const auto interests = effects.take<Interest>();
        EXPECT_EQ(interests.size(), 1U);
        EXPECT_EQ(interests.at(0).first, std::vector{next.membership.self()});
        next.mover.receive(membership.self(), interests.at(0).second, start);
        EXPECT_EQ(next.effects.reads, std::vector{listing_key});
    }

    // What the next reader reads; this one hears of it.
    void next_reads(const ObjectPtr& object) {
        next.mover.read_done(listing_key, object, start);
        for (const auto& [to, publication] : next.effects.take<Publication>()) {
            if (std::find(to.begin(), to.end(), membership.self()) != to.end()) {
                mover.receive(next.membership.self(), publication, start);
            }
        }
    }
    bool has_resigned() const { return membership.state(membership.self()) == NodeState::resigned; }

    Node next;
};

TEST(Mover, AReaderThatCannotReadWhatAnotherCanResignsForAWhile) {
    const ObjectPtr nothing = make_object(Directory());
    for (const ObjectPtr& met :
         {make_error(EIO), make_error(ENOTCONN), make_error(ENOENT), make_error(EMFILE), nothing}) {
        BrokenReader reader(met);
        EXPECT_FALSE(reader.has_resigned()) << "not before another node has read better";
        const ObjectPtr object = small_object();
        reader.next_reads(object);
        EXPECT_EQ(reader.effects.delivered, std::vector{object});
        const auto passed_on = reader.effects.take<Publication>();
        EXPECT_TRUE(std::any_of(passed_on.begin(), passed_on.end(), [](const auto& sent) {
            return std::find(sent.first.begin(), sent.first.end(), at(listing_key, 2)) != sent.first.end();
        }));
        EXPECT_TRUE(reader.has_resigned());
        EXPECT_EQ(reader.mover.counters().resignations, 1U);
        EXPECT_EQ(reader.mover.pending(), 0U);

        // What is asked of it meanwhile it asks the next reader for.
        const ObjectKey other{ObjectKind::batch, listing_key.path};
        reader.mover.receive(at(listing_key, 2), Interest{.key = other}, start + 1s);
        EXPECT_EQ(reader.effects.take<Interest>().at(0).first, std::vector{reader.next.membership.self()});

        EXPECT_LE(reader.mover.next_deadline().value(), start + 60s);
        reader.mover.tick(start + 60s);
        EXPECT_FALSE(reader.has_resigned());
    }
}

TEST(Mover, AnErrorThatTwoNodesMeetIsTheFilesystems) {
    for (const ObjectPtr& met : {make_error(EIO), make_object(Directory())}) {
        BrokenReader reader(met);
        reader.next_reads(met);
        EXPECT_EQ(reader.effects.delivered, std::vector{met});
        EXPECT_FALSE(reader.has_resigned()) << "a file that is broken for all unseats no reader";
        EXPECT_TRUE(reader.next.effects.take<Interest>().empty());
    }
}

TEST(Mover, WhereTwoReadersMeetDifferentErrorsAThirdDecides) {
    BrokenReader reader;
    reader.next_reads(make_error(ENOENT));
    const auto interests = reader.next.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    ASSERT_EQ(interests[0].second.findings.size(), 2U);
    Node third(interests[0].first.at(0), deadline(10s));
    third.mover.receive(reader.next.membership.self(), interests[0].second, start);
    third.mover.read_done(listing_key, make_error(ESTALE), start);
    EXPECT_EQ(third.effects.delivered.size(), 1U) << "no fourth one reads";
    EXPECT_TRUE(third.effects.take<Interest>().empty());
    EXPECT_FALSE(reader.has_resigned());
}

TEST(Mover, WhereNobodyElseIsLeftTheReaderBelievesItself) {
    Node reader(reader_of(listing_key));
    for (std::uint32_t rank = 0; rank < Node::default_size; ++rank) {
        if (Rank{rank} != reader.membership.self()) {
            reader.suspect(Rank{rank}, start);
        }
    }
    reader.mover.want(listing_key, FetchFor::demand, start);
    const ObjectPtr error = make_error(EIO);
    reader.mover.read_done(listing_key, error, start);
    EXPECT_EQ(reader.effects.delivered, std::vector{error});
}

// What it found empty it tells as what was asked for.
TEST(Mover, WhereNobodyElseIsLeftAnymoreTheReaderTellsWhatItFound) {
    const ObjectPtr none = make_object(Directory());
    const ObjectPtr no_more = make_object(Directory(), error_lifetime);
    const ObjectPtr no_entries = make_object(Listing({}, Listing::Detail::attributes));
    for (const auto& [key, met] : {std::pair{listing_key, none},
                                   {ObjectKey{ObjectKind::names, listing_key.path, 1, 7}, no_more},
                                   {ObjectKey{ObjectKind::batch, listing_key.path, 1, 7}, no_entries},
                                   {ObjectKey{ObjectKind::entry, listing_key.path + "/x"}, no_entries},
                                   {listing_key, make_error(EIO)}}) {
        Node reader(reader_of(key));
        reader.mover.want(key, FetchFor::demand, start);
        reader.mover.read_done(key, met, start);
        EXPECT_TRUE(reader.effects.delivered.empty()) << "another one is asked first";
        for (std::uint32_t rank = 0; rank < Node::default_size; ++rank) {
            if (Rank{rank} != reader.membership.self()) {
                reader.suspect(Rank{rank}, start);
            }
        }
        ASSERT_EQ(reader.effects.delivered.size(), 1U) << to_string(key);
        const Object& told = *reader.effects.delivered[0];
        EXPECT_EQ(told.content.index(), met->content.index()) << to_string(key);
        EXPECT_EQ(told.error(), met->error());
        EXPECT_EQ(told.lifetime, met->lifetime) << to_string(key);
    }
}

TEST(Mover, WhereTheNextReaderIsLostAThirdReads) {
    BrokenReader reader;
    reader.suspect(reader.next.membership.self(), start);
    const auto interests = reader.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_NE(interests[0].first, std::vector{reader.next.membership.self()});
    EXPECT_EQ(interests[0].second.findings.size(), 1U);
}

TEST(Mover, AnErrorThatNoMountExplainsIsPublishedAtOnce) {
    Node reader(reader_of(listing_key));
    reader.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
    reader.mover.read_done(listing_key, make_error(EACCES), start);
    EXPECT_EQ(reader.effects.take<Publication>().size(), 1U);
    EXPECT_TRUE(reader.effects.take<Interest>().empty());
}

TEST(Mover, ASlowReaderHasOneOtherReadTooAndTheFirstAnswerWins) {
    for (const bool is_own_first : {true, false}) {
        Node reader(reader_of(listing_key), deadline(10s));
        reader.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
        pass(reader, start, start + 5s);
        const auto interests = reader.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U);
        const Rank next_rank = interests[0].first.at(0);
        EXPECT_EQ(interests[0].second.findings,
                  (std::vector<Finding>{{.reader = reader.membership.self(), .error = ETIMEDOUT}}));
        Node next(next_rank, deadline(10s));
        next.mover.receive(reader.membership.self(), interests[0].second, start + 5s);
        pass(next, start + 5s, start + 30s);
        EXPECT_TRUE(next.effects.take<Interest>().empty()) << "slow for both: two reads are enough";

        const ObjectPtr object = small_object();
        if (is_own_first) {
            reader.mover.read_done(listing_key, object, start + 6s);
        } else {
            reader.mover.receive(next_rank,
                                 {.key = listing_key,
                                  .root = next_rank,
                                  .spread = Publication::Spread::asked,
                                  .object = object},
                                 start + 6s);
            reader.mover.read_done(listing_key, small_object(2), start + 9s);
        }
        EXPECT_EQ(reader.effects.delivered, std::vector{object});
        EXPECT_EQ(reader.mover.counters().resignations, is_own_first ? 0U : 1U);
        EXPECT_EQ(reader.mover.pending(), 0U);
    }
}

// Reads for others wait for the links: then another reader would be no faster.
TEST(Mover, AReaderThatHasMuchToSendIsNotSlow) {
    Node reader(reader_of(listing_key), deadline(10s));
    reader.effects.backlogs[at(listing_key, 5)] = 20U << 20;
    reader.mover.want(listing_key, FetchFor::demand, start);
    pass(reader, start, start + 9s);
    EXPECT_EQ(reader.mover.counters().passed_on, 0U);
    reader.effects.backlogs.clear();
    pass(reader, start + 9s, start + 14s);
    EXPECT_EQ(reader.mover.counters().passed_on, 1U);
}

// Work that lasts is told in growing numbers, whoever does it: a reader goes on counting from what others
// have spent.
TEST(Mover, TheNextReaderCountsTheTimeOfTheFirst) {
    Node next(at(listing_key, 4), deadline(8s));
    next.mover.receive(reader_of(listing_key),
                       Interest{.key = listing_key,
                                .findings = {{.reader = reader_of(listing_key), .error = ETIMEDOUT}},
                                .spent = 4s},
                       start);
    const auto words = next.effects.take<Working>();
    ASSERT_EQ(words.size(), 1U);
    EXPECT_GT(words[0].second.spent, 4s);
}

TEST(Mover, WhoReadsDirectlyKeepsItsOwnTroubleToItself) {
    Node node(at(listing_key, 1), deadline(8s));
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.want(listing_key, FetchFor::demand, start);
    pass(node, start, start + 8s);
    ASSERT_EQ(node.effects.reads.size(), 1U);
    node.mover.read_done(listing_key, make_error(std::errc::io_error), start + 8s);
    EXPECT_EQ(node.effects.delivered.size(), 1U);
    EXPECT_TRUE(node.effects.take<Publication>().empty());
}

TEST(Mover, ACacheThatKeepsNothingStillAnswersEveryWant) {
    Node reader(reader_of(listing_key));
    Node child(at(listing_key, 1));
    reader.effects.keeps = child.effects.keeps = false;
    for (std::size_t round = 1; round <= 3; ++round) {
        child.mover.want(listing_key, FetchFor::demand, start);
        reader.mover.receive(child.membership.self(), child.effects.take<Interest>().at(0).second, start);
        ASSERT_EQ(reader.effects.reads.size(), round);
        reader.mover.read_done(listing_key, small_object(), start);
        child.mover.receive(reader.membership.self(), reader.effects.take<Publication>().at(0).second, start);
        ASSERT_EQ(child.effects.delivered.size(), round);
    }
}

TEST(Mover, WhatWasEvictedIsReadAgainForThoseWhoAsk) {
    Node reader(reader_of(listing_key));
    reader.mover.want(listing_key, FetchFor::demand, start);
    reader.mover.read_done(listing_key, small_object(), start);
    static_cast<void>(reader.effects.take<Publication>());
    reader.effects.cache.clear();
    const Rank asker = at(listing_key, 2);
    reader.mover.receive(asker, Interest{.key = listing_key, .seen = {1, 0}}, start);
    ASSERT_EQ(reader.effects.reads.size(), 2U);
    reader.mover.read_done(listing_key, small_object(), start);
    const auto publications = reader.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 1U);
    EXPECT_EQ(publications[0].first, std::vector{asker}) << "the others may not want it any more";
}

TEST(Mover, BroadcastsPassOverANodeToWhichTooMuchIsOnItsWay) {
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
    EXPECT_EQ(sent[0].first, std::vector{children.at(0)}) << "who asks has room";
}

TEST(Mover, SlowNodesLeaveRoomForOthers) {
    constexpr std::uint64_t mebibyte = 1U << 20;
    const auto passed_over = [](std::uint64_t to_child, std::uint64_t to_others) {
        Node reader(reader_of(listing_key));
        reader.effects.backlogs[reader.children(listing_key).at(0)] = to_child;
        reader.effects.backlogs[Rank{1000}] = to_others;
        reader.mover.want(listing_key, FetchFor::demand, start);
        reader.mover.read_done(listing_key, small_object(), start);
        return reader.mover.counters().passed_over;
    };
    EXPECT_EQ(passed_over(15 * mebibyte, 0), 0U);
    EXPECT_EQ(passed_over(15 * mebibyte, 30 * mebibyte), 1U) << "3 MiB are left of 48";
    EXPECT_EQ(passed_over(2 * mebibyte, 30 * mebibyte), 0U);
    EXPECT_EQ(passed_over(0, 100 * mebibyte), 0U) << "a node to which nothing is on its way";
}

TEST(Mover, OnlyWhatIsReadForOthersMayWaitForThem) {
    using ReadFor = Recorder::ReadFor;
    Node reader(reader_of(listing_key));
    reader.mover.want(listing_key, FetchFor::demand, start);
    EXPECT_EQ(reader.effects.read_for, ReadFor::others);
    Node asked(at(listing_key, 9));
    asked.mover.want(listing_key, FetchFor::demand, start);
    asked.mover.tick(start + Mover::Options{}.deadline);
    ASSERT_EQ(asked.effects.reads.size(), 1U);
    EXPECT_EQ(asked.effects.read_for, ReadFor::itself);
}

ObjectKey extent_of(const std::string& name, std::uint32_t index) {
    return {ObjectKind::extent, listing_key.path + '/' + name, index};
}

// To how many nodes the reader sends what it reads because `origin` asked for it.
std::size_t addressees(Node& reader, const ObjectKey& key, Rank asker, Rank origin) {
    reader.mover.receive(asker, Interest{.key = key, .origin = origin}, start);
    EXPECT_EQ(reader.effects.reads.size(), 1U);
    reader.effects.reads.clear();
    reader.mover.read_done(key, small_object(), start);
    std::size_t count = 0;
    for (const auto& [to, publication] : reader.effects.take<Publication>()) {
        count += to.size();
    }
    return count;
}

// The root of the tree that an extent takes, the only child of its reader; and a child of that root.
Rank relay_of(const ObjectKey& key) {
    return Node(reader_of(listing_key)).children(key).at(0);
}
Rank below_relay(const ObjectKey& key) {
    return Node(relay_of(key)).children(key).at(0);
}

TEST(Mover, ALargeFileIsSentToThoseWhoAskUntilItIsShared) {
    Node reader(reader_of(listing_key), {});
    for (std::uint32_t index = 1; index <= 5; ++index) {
        const ObjectKey key = extent_of("x.so", index);
        // Three nodes of 15 make a shared file of it.
        EXPECT_EQ(addressees(reader, key, below_relay(key), Rank{index}), index < 3 ? 1U : 2U) << index;
    }
    const ObjectKey key = extent_of("y.so", 1);
    Node always(reader_of(listing_key));
    EXPECT_EQ(addressees(always, key, below_relay(key), Rank{1}), 2U);
    Node never(reader_of(listing_key), {.spreading = {.push = Push::never}});
    EXPECT_EQ(addressees(never, listing_key, at(listing_key, 9), Rank{1}), 1U);
}

// B: what one node does costs one node.
TEST(Mover, WhatOneNodeUsesGoesToThatNodeAlone) {
    Node reader(reader_of(listing_key), {});
    const Rank node = at(listing_key, 1);
    EXPECT_EQ(addressees(reader, listing_key, node, node), 1U);
    for (std::uint32_t number = 0; number < 200; ++number) {
        ASSERT_EQ(addressees(reader, extent_of(std::to_string(number), 0), node, node), 1U) << number;
    }
}

TEST(Mover, WhatSeveralNodesUseIsPushedToAll) {
    Node reader(reader_of(listing_key), {});
    const std::vector<Rank> nodes = reader.children(listing_key);
    EXPECT_EQ(addressees(reader, listing_key, nodes[0], nodes[0]), 1U);
    reader.mover.receive(nodes[1], Interest{.key = listing_key, .origin = nodes[1]}, start);
    static_cast<void>(reader.effects.take<Publication>());
    // Both use its names: so the first files go to both.
    EXPECT_EQ(addressees(reader, extent_of("a", 0), nodes[0], nodes[0]), 2U);
}

// A node that merges the interests of two tells the reader so with its next interest.
TEST(Mover, ANodeThatMergesTellsTheReader) {
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

// What a profile foretells is read behind demand, and goes to all nodes, although one node asks for it.
TEST(Mover, WhatEveryoneWillUseIsPushed) {
    for (const std::uint32_t index : {0U, 5U}) {
        const ObjectKey key = extent_of("library", index);
        Node reader(reader_of(key), {});
        const Rank asker = reader.children(key)[0];
        reader.mover.receive(asker, Interest{.key = key, .origin = asker, .why = FetchFor::everyone}, start);
        EXPECT_EQ(reader.effects.read_for, Recorder::ReadFor::ahead);
        reader.mover.read_done(key, large_object(), start);
        const auto sent = reader.effects.take<Publication>();
        ASSERT_EQ(sent.size(), 1U);
        EXPECT_EQ(sent[0].second.spread, Publication::Spread::everyone) << "extent " << index;
    }
}

TEST(Mover, AnInterestKeepsItsReasonOnItsWay) {
    for (const FetchFor why : {FetchFor::demand, FetchFor::guess, FetchFor::everyone}) {
        Node node(at(listing_key, 1), {});
        node.mover.receive(at(listing_key, 3),
                           Interest{.key = listing_key, .origin = at(listing_key, 3), .why = why}, start);
        const auto interests = node.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U);
        EXPECT_EQ(interests[0].second.why, why);
    }
}

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
};

TEST(Mover, WhoReadsAFileThatNobodySharesReadsItByItself) {
    for (const ObjectKey& key : {extent_of("shard3", 3), extent_of("small", 0)}) {
        SCOPED_TRACE(to_string(key));
        ReaderOfShards reader;
        Node relay(relay_of(key));
        Node asker(below_relay(key));
        asker.mover.want(key, FetchFor::demand, start);
        relay.mover.receive(asker.membership.self(), asker.effects.take<Interest>().at(0).second, start);
        reader.mover.receive(relay.membership.self(), relay.effects.take<Interest>().at(0).second, start);
        EXPECT_TRUE(reader.effects.reads.empty());
        const auto decline = reader.effects.take<Decline>().at(0).second;

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

TEST(Mover, TwoWhoWantTheSameAreNotLeftToThemselves) {
    for (const ObjectKey& key : {extent_of("shard3", 3), extent_of("small", 0)}) {
        SCOPED_TRACE(to_string(key));
        ReaderOfShards reader;
        Node relay(relay_of(key));
        Node both(below_relay(key));
        both.mover.want(key, FetchFor::demand, start);
        both.mover.receive(at(listing_key, 14), Interest{.key = key, .origin = at(listing_key, 14)}, start);
        // The reader takes them for one, and hears that it was wrong, however many nodes are in between.
        for (const bool declined : {true, false}) {
            relay.mover.receive(both.membership.self(), both.effects.take<Interest>().at(0).second, start);
            reader.mover.receive(relay.membership.self(), relay.effects.take<Interest>().at(0).second, start);
            const auto declines = reader.effects.take<Decline>();
            ASSERT_EQ(declines.size(), declined ? 1U : 0U);
            if (declined) {
                relay.mover.receive(reader.membership.self(), declines[0].second, start);
                both.mover.receive(relay.membership.self(), relay.effects.take<Decline>().at(0).second,
                                   start);
            }
        }
        EXPECT_EQ(reader.effects.reads, std::vector{key}) << "for both";
        EXPECT_TRUE(both.effects.reads.empty());
        EXPECT_TRUE(both.effects.take<Decline>().empty());
    }
}

TEST(Mover, ASmallFileThatASecondNodeWantsIsReadForIt) {
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

TEST(Mover, ForgettingBroadcastsCostsRepeatsOnly) {
    Node node(at(listing_key, 1), {.spreading = {.broadcasts_remembered_max = 2}});
    for (std::uint64_t i = 1; i <= 5; ++i) {
        const ObjectKey key{ObjectKind::extent, listing_key.path + "/" + std::to_string(i)};
        node.mover.receive(reader_of(listing_key), broadcast_of(key, small_object(), i, i), start);
    }
    EXPECT_EQ(node.effects.take<Publication>().size(), 5U);
    EXPECT_EQ(node.effects.delivered.size(), 5U);
}

}  // namespace
}  // namespace copper
