#include "collectives/mover.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <variant>

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint start{1h};
const Trees trees({"/app"});
const ObjectKey listing_key{ObjectKind::listing, "/app/lib"};

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
    void deliver(const ObjectKey& key, const ObjectPtr& object, Retention given) override {
        retention = given;
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
    Retention retention = Retention::ordinary;  // of the last delivery
    std::map<ObjectKey, ObjectPtr> cache;
    std::vector<std::string> log;
    std::vector<ObjectKey> reads;
    std::vector<ObjectPtr> delivered;
    std::vector<Sent> sent;
};

struct Node {
    static constexpr std::uint32_t default_size = 15;

    explicit Node(Rank self, Mover::Options options = {},
                  Membership::Options view = {.size = default_size, .self = {}, .arity = 2, .readers = 4})
        : membership({.size = view.size, .self = self, .arity = view.arity, .readers = view.readers}),
          mover(options, trees, membership, effects) {}

    Rank reader(const ObjectKey& key) const { return membership.reader_of(file_tree_of(key)); }
    Rank parent(const ObjectKey& key) const { return membership.parent(reader(key)).value(); }
    std::vector<Rank> children(const ObjectKey& key) const { return membership.children(reader(key)); }
    // For good, or as a suspect.
    void lose(Rank rank, TimePoint now, std::optional<TimePoint> silent_since = std::nullopt) {
        const LostNode node{.rank = rank, .silent_since = silent_since};
        if (membership.is_alive(rank)) {
            mover.peers_lost({&node, 1}, now);
        }
    }

    Membership membership;
    Recorder effects;
    Mover mover;
};

Rank reader_of(const ObjectKey& key) {
    return Node(Rank{0}).reader(key);
}

Rank keeper_of(const ObjectKey& key) {
    return Node(Rank{0}).membership.keeper_of(hash_of(key));
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
            .spread = Publication::Spread::everyone,
            .serial = serial,
            .sequence = sequence,
            .lane = object->bytes() > eager_body_bytes_max ? Lane::bulk : Lane::eager,
            .object = object};
}

TEST(Mover, OneWantIsOneInterestToTheParent) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, start);
    node.mover.want(listing_key, start + 1ms);
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
    node.mover.want(listing_key, start);
    node.mover.want(listing_key, start);
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
    node.mover.want(listing_key, start);
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
    node.mover.want(listing_key, start);
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
    node.mover.receive(reader, broadcast_of({ObjectKind::listing, "/app/a"}, small_object(), 1, 7), start);
    node.mover.receive(reader, broadcast_of(extent, large_object(), 2, 3), start);
    node.mover.want(listing_key, start);
    const auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].second.seen, (Seen{7, 3}));
}

TEST(Mover, LanesKeepSeparateSequences) {
    Node node(reader_of(listing_key));
    std::vector<std::pair<Lane, std::uint64_t>> sequences;
    for (int i = 0; i < 4; ++i) {
        const ObjectKey key{ObjectKind::extent, listing_key.path + "/" + std::to_string(i)};
        node.mover.want(key, start);
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
    node.mover.want(listing_key, start);
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
    node.mover.want(listing_key, start);
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

TEST(Mover, ItAsksTwoOtherWaysAndBeforeTheDeadlineReadsByItself) {
    const Rank self = at(listing_key, 7);
    Node node(self, {.deadline = 9s});
    node.mover.want(listing_key, start);
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
    const Rank next_reader = node.membership.readers_of(listing_key.path, 2).at(1);
    EXPECT_EQ(interests[0].first, std::vector{node.membership.parent(next_reader).value()});
    EXPECT_EQ(interests[0].second.attempt, 2U);
    EXPECT_EQ(node.mover.counters().retries, 2U);

    node.mover.tick(start + 6749ms);
    EXPECT_TRUE(node.effects.reads.empty());
    node.mover.receive(at(listing_key, 8), Interest{.key = listing_key}, start + 6749ms);
    pass(node, start + 6750ms, start + 9s);
    node.mover.tick(start + 60s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
    EXPECT_EQ(node.mover.counters().direct_reads, 1U);
    EXPECT_EQ(node.mover.counters().deadline, 1U);

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
        Node node(at(listing_key, position), {.deadline = 8s});
        node.mover.want(listing_key, start);
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
    Node node(at(listing_key, 1), {.deadline = 8s});
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.want(listing_key, start);
    pass(node, start, start + 8s);
    ASSERT_EQ(node.effects.reads.size(), 1U);
    const auto words = node.effects.take<Working>();
    ASSERT_FALSE(words.empty());
    EXPECT_EQ(words[0].first, std::vector{at(listing_key, 3)});
}

TEST(Mover, DirectReadsAreFewAtATime) {
    Node node(at(listing_key, 3), {.deadline = 9s, .direct_reads_max = 2});
    const auto key = [](int i) { return ObjectKey{ObjectKind::listing, "/app/" + std::to_string(i)}; };
    int wanted = 0;
    for (int i = 0; wanted < 5; ++i) {
        if (node.reader(key(i)) != node.membership.self()) {
            node.mover.want(key(i), start);
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

TEST(Mover, WhoReadsSaysSoFourTimesADeadline) {
    Node reader(reader_of(listing_key), {.deadline = 8s});
    reader.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
    std::chrono::milliseconds spent(-1);
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
    // Who has waited in vain is told at once.
    reader.mover.receive(at(listing_key, 4), Interest{.key = listing_key, .attempt = 1}, start + 61s);
    const auto words = reader.effects.take<Working>();
    ASSERT_EQ(words.size(), 1U);
    EXPECT_EQ(words[0].first, std::vector{at(listing_key, 4)});
    EXPECT_EQ(reader.effects.reads.size(), 1U);
}

TEST(Mover, WordOfWorkPutsTheDeadlineOffAndIsPassedOn) {
    Node node(at(listing_key, 1), {.deadline = 9s, .deadlines_max = 4});
    node.mover.want(listing_key, start);
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
    Node node(at(listing_key, 1), {.deadline = 9s});
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
    Node node(at(listing_key, 1), {.deadline = 9s});
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.tick(start + 3s);
    node.mover.want(listing_key, start + 8s);
    node.mover.tick(start + 9s);
    EXPECT_EQ(node.mover.pending(), 1U);
    EXPECT_EQ(node.mover.next_deadline(), start + 11s);
    pass(node, start + 9s, start + 14s);
    EXPECT_TRUE(node.effects.reads.empty());
    pass(node, start + 14s, start + 17s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
}

TEST(Mover, ACorruptObjectIsReadDirectlyAtOnce) {
    Node node(at(listing_key, 3));
    node.mover.corrupt(listing_key);
    EXPECT_TRUE(node.effects.reads.empty()) << "nobody here wants it";
    node.mover.want(listing_key, start);
    node.mover.corrupt(listing_key);
    node.mover.corrupt(listing_key);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
    EXPECT_EQ(node.mover.counters().corrupt, 3U);
    EXPECT_EQ(node.mover.counters().direct_reads, 1U);
}

TEST(Mover, ALostPeerIsAskedNoMoreAndANewReaderReads) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, start);
    ASSERT_EQ(node.effects.take<Interest>().at(0).first, std::vector{at(listing_key, 1)});

    EXPECT_EQ(node.mover.awaited(), std::set{at(listing_key, 1)});

    // The one that was asked may wait for the lost one, and must be told.
    const auto told_by = [&node] {
        const auto interests = node.effects.take<Interest>();
        EXPECT_EQ(interests.size(), 1U);
        return interests.empty() ? std::vector<Sighting>() : interests.front().second.view.suspects;
    };
    node.lose(at(listing_key, 9), start + 1s, start);
    EXPECT_EQ(told_by(), (std::vector<Sighting>{{at(listing_key, 9), 1000ms}}));
    // That one's link is broken, which is nobody else's concern.
    node.lose(at(listing_key, 10), start + 1s);
    EXPECT_EQ(told_by(), (std::vector<Sighting>{{at(listing_key, 9), 1000ms}}));

    node.lose(at(listing_key, 1), start + 2s, start + 1s);
    node.lose(at(listing_key, 1), start + 2s, start + 1s);
    const auto interests = node.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_NE(interests[0].first, std::vector{at(listing_key, 1)});
    EXPECT_TRUE(node.membership.is_alive(interests[0].first.at(0)));
    EXPECT_EQ(interests[0].second.attempt, 3U);
    EXPECT_EQ(interests[0].second.view.suspects,
              (std::vector<Sighting>{{at(listing_key, 1), 1000ms}, {at(listing_key, 9), 2000ms}}));
    EXPECT_EQ(node.mover.counters().retries, 3U);

    // It was only slow; the one with the broken link does not come back.
    node.mover.peer_regained(at(listing_key, 1), start + 2s, start + 2s);
    const auto back = node.effects.take<Interest>();
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].first, std::vector{at(listing_key, 1)});
    node.mover.peer_regained(at(listing_key, 10), start + 2s, start + 2s);
    EXPECT_FALSE(node.membership.is_alive(at(listing_key, 10)));

    // All others go: this node becomes the reader, and reads to publish.
    for (std::uint32_t rank = 0; rank < Node::default_size; ++rank) {
        if (Rank{rank} != node.membership.self()) {
            node.lose(Rank{rank}, start + 1s);
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
    node.lose(asker, start);
    node.mover.read_done(listing_key, small_object(), start);
    for (const auto& [to, publication] : node.effects.take<Publication>()) {
        EXPECT_EQ(std::count(to.begin(), to.end(), asker), 0);
    }
}

// However many nodes are lost, and whenever: the application does not wait past its deadline.
TEST(Mover, LostPeersDoNotPutOffTheDeadline) {
    Node node(at(listing_key, 3), {.deadline = 10s});
    node.mover.want(listing_key, start);
    node.mover.tick(start + 5s);
    for (const auto when : {start + 6s, start + 7s}) {
        const Rank asked = node.effects.take<Interest>().back().first.at(0);
        node.mover.tick(when);
        node.lose(asked, when);
    }
    ASSERT_TRUE(node.effects.reads.empty());
    ASSERT_TRUE(node.mover.next_deadline());
    EXPECT_LE(*node.mover.next_deadline(), start + 10s);
    pass(node, start + 7s, start + 10s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
}

TEST(Mover, TableOfInterestsIsBounded) {
    Node node(at(listing_key, 1), {.pending_max = 3});
    for (int i = 0; i < 10; ++i) {
        node.mover.receive(at(listing_key, 3),
                           Interest{.key = {ObjectKind::listing, "/app/" + std::to_string(i)}}, start);
    }
    EXPECT_EQ(node.mover.pending(), 3U);
    EXPECT_EQ(node.mover.counters().interests_refused, 7U);
    node.mover.receive(at(listing_key, 4), Interest{.key = {ObjectKind::listing, "/app/0"}}, start);
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
    for (const ObjectKey& key : {ObjectKey{ObjectKind::listing, "/home/me"},
                                 ObjectKey{ObjectKind::own_extent, listing_key.path + "/large"}}) {
        Node node(Rank{3});
        node.mover.want(key, start);
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
    Node node(at(listing_key, 3), {.deadline = 10s});
    node.mover.want(listing_key, start);
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
    node.mover.want(listing_key, start);
    EXPECT_TRUE(node.effects.log.empty());
    EXPECT_EQ(node.mover.pending(), 0U);
}

TEST(Mover, AnExpiredErrorIsAskedForAgainAllTheWay) {
    Node reader(reader_of(listing_key));
    Node child(at(listing_key, 1));
    std::uint64_t serial = 0;
    for (int round = 0; round < 3; ++round) {
        const TimePoint now = start + round * 2s;
        child.mover.want(listing_key, now);
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

// A mount of the backing filesystem that is broken here is not broken everywhere.
struct BrokenReader : Node {
    explicit BrokenReader(std::errc error = std::errc::io_error, Mover::Options options = {.deadline = 10s})
        : Node(reader_of(listing_key), options), readers(membership.readers_of(listing_key.path, 4)) {
        mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
        mover.read_done(listing_key, make_error(error), start);
        mover.tick(start);
    }
    Publication from_helper(ObjectPtr object) const {
        return {
            .key = listing_key, .root = readers[1], .spread = Publication::Spread::asked, .object = object};
    }
    const std::vector<Rank> readers;
};

TEST(Mover, AReaderWithABrokenMountHasTheNextOneRead) {
    for (const auto error : {std::errc::io_error, std::errc::not_connected, std::errc::timed_out,
                             std::errc::no_such_file_or_directory}) {
        BrokenReader reader(error);
        EXPECT_TRUE(reader.effects.delivered.empty());
        EXPECT_TRUE(reader.effects.take<Publication>().empty());
        const auto interests = reader.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U);
        EXPECT_EQ(interests[0].first, std::vector{reader.readers[1]});
        EXPECT_EQ(interests[0].second.scope, Interest::Scope::instead);
        EXPECT_EQ(reader.mover.awaited(), std::set{reader.readers[1]});

        // It may itself wait for the reader.
        Node next(reader.readers[1]);
        next.mover.want(listing_key, start);
        static_cast<void>(next.effects.take<Interest>());
        next.mover.receive(reader.membership.self(), interests[0].second, start);
        EXPECT_EQ(next.effects.reads, std::vector{listing_key});
        next.mover.read_done(listing_key, small_object(), start);
        const auto answers = next.effects.take<Publication>();
        ASSERT_EQ(answers.size(), 1U);
        EXPECT_EQ(answers[0].first, std::vector{reader.membership.self()});
        EXPECT_EQ(next.effects.delivered.size(), 1U);

        reader.mover.receive(reader.readers[1], answers[0].second, start);
        const auto published = reader.effects.take<Publication>();
        ASSERT_EQ(published.size(), 1U);
        EXPECT_EQ(published[0].first, reader.children(listing_key));
        EXPECT_EQ(published[0].second.spread, Publication::Spread::everyone);
        EXPECT_EQ(reader.effects.delivered.size(), 1U);
        EXPECT_EQ(reader.mover.counters().direct_reads, 0U);
        EXPECT_EQ(reader.mover.counters().handed_on, 1U);

        // The next one's tree for a while, then it tries again.
        const ObjectKey other{ObjectKind::extent, listing_key.path + "/x"};
        reader.effects.reads.clear();
        reader.mover.want(other, start + 9s);
        EXPECT_TRUE(reader.effects.reads.empty());
        EXPECT_EQ(reader.effects.take<Interest>().at(0).second.scope, Interest::Scope::instead);
        const ObjectKey third{ObjectKind::extent, listing_key.path + "/y"};
        reader.mover.want(third, start + 10s);
        EXPECT_EQ(reader.effects.reads, std::vector{third});
    }
}

TEST(Mover, AnErrorThatTwoNodesMeetIsTheFilesystems) {
    BrokenReader reader;
    reader.mover.receive(reader.readers[1], reader.from_helper(make_error(std::errc::io_error)), start);
    const auto published = reader.effects.take<Publication>();
    ASSERT_EQ(published.size(), 1U);
    EXPECT_EQ(published[0].second.object->error(), std::errc::io_error);
    EXPECT_EQ(reader.effects.delivered.size(), 1U);
    EXPECT_EQ(reader.mover.pending(), 0U);
}

TEST(Mover, WhereTwoNodesMeetDifferentErrorsAThirdDecides) {
    BrokenReader reader(std::errc::not_connected);
    static_cast<void>(reader.effects.take<Interest>());
    const auto absent = make_error(std::errc::no_such_file_or_directory);
    reader.mover.receive(reader.readers[1], reader.from_helper(absent), start + 1s);
    reader.mover.tick(start + 1s);
    EXPECT_EQ(reader.effects.take<Interest>().at(0).first, std::vector{reader.readers[2]});
    reader.mover.receive(reader.readers[2], reader.from_helper(absent), start + 1s);
    EXPECT_EQ(reader.effects.take<Publication>().at(0).second.object, absent);
}

TEST(Mover, AReaderWhoseHelpersAreOfNoHelpPublishesWhatItHas) {
    BrokenReader reader;
    EXPECT_EQ(reader.effects.take<Interest>().at(0).first, std::vector{reader.readers[1]});
    reader.mover.receive(reader.readers[1], Decline{listing_key, Decline::Reason::unable}, start + 1s);
    reader.mover.tick(start + 1s);
    EXPECT_EQ(reader.effects.take<Interest>().at(0).first, std::vector{reader.readers[2]});
    reader.lose(reader.readers[2], start + 2s);
    EXPECT_TRUE(reader.effects.delivered.empty());
    reader.mover.tick(start + 2s);
    EXPECT_TRUE(reader.effects.take<Interest>().empty());
    EXPECT_EQ(reader.effects.take<Publication>().at(0).second.object->error(), std::errc::io_error);
    EXPECT_EQ(reader.effects.delivered.size(), 1U);
    EXPECT_EQ(reader.mover.pending(), 0U);
}

TEST(Mover, AReaderWaitsForItsHelpersNoLongerThanForOthers) {
    BrokenReader reader;
    pass(reader, start, start + 10s);
    EXPECT_EQ(reader.mover.counters().handed_on, 2U);
    EXPECT_EQ(reader.effects.take<Publication>().size(), 1U);
    EXPECT_EQ(reader.mover.pending(), 0U);
}

// Too many open files are the reader's trouble: no other node may take them for the filesystem's answer.
TEST(Mover, AReaderKeepsItsOwnTroubleToItself) {
    BrokenReader reader(std::errc::too_many_files_open);
    EXPECT_TRUE(reader.effects.delivered.empty());
    for (const std::size_t helper : {1U, 2U}) {
        const auto interests = reader.effects.take<Interest>();
        ASSERT_EQ(interests.size(), 1U);
        EXPECT_EQ(interests[0].first, std::vector{reader.readers[helper]});
        EXPECT_EQ(interests[0].second.scope, Interest::Scope::instead);
        reader.mover.receive(reader.readers[helper], Decline{listing_key, Decline::Reason::unable}, start);
        reader.mover.tick(start);
    }
    EXPECT_TRUE(reader.effects.sent.empty());
    ASSERT_EQ(reader.effects.delivered.size(), 1U);
    EXPECT_EQ(reader.effects.delivered[0]->error(), std::errc::too_many_files_open);
    EXPECT_EQ(reader.effects.delivered[0]->lifetime, 0ms);
    EXPECT_EQ(reader.mover.pending(), 0U);
}

TEST(Mover, AnErrorThatNoMountExplainsIsPublishedAtOnce) {
    BrokenReader reader(std::errc::permission_denied);
    EXPECT_TRUE(reader.effects.take<Interest>().empty());
    EXPECT_EQ(reader.effects.take<Publication>().size(), 1U);
}

// The mount point is there, the filesystem is not.
TEST(Mover, AnEmptyTreeIsLookedAtFromASecondNode) {
    const ObjectKey root{ObjectKind::listing, "/app"};
    const auto empty = make_object(Listing({}, Listing::Detail::attributes));
    Node reader(reader_of(root));
    reader.mover.want(root, start);
    reader.mover.read_done(root, empty, start);
    reader.mover.tick(start);
    EXPECT_TRUE(reader.effects.delivered.empty());
    EXPECT_EQ(reader.effects.take<Interest>().at(0).second.scope, Interest::Scope::instead);
    Node elsewhere(reader_of(listing_key));
    elsewhere.mover.want(listing_key, start);
    elsewhere.mover.read_done(listing_key, empty, start);
    EXPECT_EQ(elsewhere.effects.delivered.size(), 1U);
}

TEST(Mover, WhoCannotReadForTheReaderSaysSoAndGoesOnWaiting) {
    const Rank helper = Node(Rank{0}).membership.readers_of(listing_key.path, 2).at(1);
    for (const auto error : {std::errc::io_error, std::errc::too_many_files_open}) {
        Node node(helper);
        node.mover.want(listing_key, start);
        static_cast<void>(node.effects.take<Interest>());
        node.mover.receive(reader_of(listing_key),
                           Interest{.key = listing_key, .scope = Interest::Scope::instead}, start);
        node.mover.read_done(listing_key, make_error(error), start);
        EXPECT_TRUE(node.effects.delivered.empty());
        const bool is_told = error == std::errc::io_error;
        EXPECT_EQ(node.effects.take<Publication>().size(), is_told ? 1U : 0U);
        EXPECT_EQ(node.effects.take<Decline>().size(), is_told ? 0U : 1U);
        EXPECT_EQ(node.effects.take<Interest>().at(0).first, std::vector{node.parent(listing_key)});
    }
}

// Its own read goes on; whichever comes first is published, the other one is forgotten.
TEST(Mover, ASlowReaderHasAtMostTwoOthersReadToo) {
    Node reader(reader_of(listing_key), {.deadline = 10s});
    const auto readers = reader.membership.readers_of(listing_key.path, 4);
    reader.mover.want(listing_key, start);
    pass(reader, start, start + 1999ms);
    EXPECT_TRUE(reader.effects.take<Interest>().empty());
    pass(reader, start + 2s, start + 60s);
    const auto interests = reader.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 2U);
    EXPECT_EQ(interests[0].first, std::vector{readers[1]});
    EXPECT_EQ(interests[1].first, std::vector{readers[2]});
    const ObjectPtr first = small_object(1);
    reader.mover.receive(
        readers[1],
        {.key = listing_key, .root = readers[1], .spread = Publication::Spread::asked, .object = first},
        start + 61s);
    EXPECT_EQ(reader.effects.take<Publication>().size(), 1U);
    reader.mover.read_done(listing_key, small_object(2), start + 62s);
    reader.mover.receive(readers[2],
                         {.key = listing_key,
                          .root = readers[2],
                          .spread = Publication::Spread::asked,
                          .object = small_object(3)},
                         start + 63s);
    EXPECT_TRUE(reader.effects.take<Publication>().empty());
    EXPECT_EQ(reader.effects.delivered, std::vector{first});
}

// What is slow is told by what is usual.
TEST(Mover, AFilesystemThatIsUsuallySlowIsGivenMoreTime) {
    Node reader(reader_of(listing_key), {.deadline = 10s});
    TimePoint now = start;
    const auto handed_on_in = [&](std::chrono::milliseconds length) {
        static int number = 0;
        const ObjectKey key{ObjectKind::extent, listing_key.path + "/" + std::to_string(++number)};
        const auto before = reader.mover.counters().handed_on;
        reader.mover.want(key, now);
        pass(reader, now, now + length);
        now += length;
        reader.mover.read_done(key, small_object(), now);
        return reader.mover.counters().handed_on - before;
    };
    EXPECT_EQ(handed_on_in(2500ms), 1U);
    for (int i = 0; i < 20; ++i) {
        handed_on_in(i % 2 == 0 ? 200ms : 2800ms);
    }
    EXPECT_EQ(handed_on_in(2800ms), 0U);
}

// Reads for others wait for the links: then another reader would be no faster.
TEST(Mover, AReaderThatHasMuchToSendIsNotSlow) {
    Node reader(reader_of(listing_key), {.deadline = 10s});
    reader.effects.backlogs[at(listing_key, 5)] = 20U << 20;
    reader.mover.want(listing_key, start);
    pass(reader, start, start + 9s);
    EXPECT_EQ(reader.mover.counters().handed_on, 0U);
    reader.effects.backlogs.clear();
    pass(reader, start + 9s, start + 14s);
    EXPECT_GT(reader.mover.counters().handed_on, 0U);
}

TEST(Mover, WhoReadsDirectlyKeepsItsOwnTroubleToItself) {
    Node node(at(listing_key, 1), {.deadline = 8s});
    node.mover.receive(at(listing_key, 3), Interest{.key = listing_key}, start);
    node.mover.want(listing_key, start);
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
        child.mover.want(listing_key, start);
        reader.mover.receive(child.membership.self(), child.effects.take<Interest>().at(0).second, start);
        if (round > 1) {
            reader.mover.receive(keeper_of(listing_key), Decline{listing_key}, start);
        }
        ASSERT_EQ(reader.effects.reads.size(), round);
        reader.mover.read_done(listing_key, small_object(), start);
        child.mover.receive(reader.membership.self(), reader.effects.take<Publication>().at(0).second, start);
        ASSERT_EQ(child.effects.delivered.size(), round);
    }
}

// A reader that has published the object and holds it no longer, when another node asks for it.
struct Forgetful : Node {
    Forgetful() : Node(reader_of(listing_key)), asker(at(listing_key, 2)) {
        mover.want(listing_key, start);
        mover.read_done(listing_key, small_object(), start);
        static_cast<void>(effects.take<Publication>());
        effects.cache.clear();
        effects.reads.clear();
        mover.receive(asker, Interest{.key = listing_key, .seen = {1, 0}}, start);
    }
    const Rank asker;
};

TEST(Mover, AnEvictedObjectIsGotBackFromItsKeeper) {
    ASSERT_NE(keeper_of(listing_key), reader_of(listing_key));
    Forgetful reader;
    const auto interests = reader.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_EQ(interests[0].first, std::vector{keeper_of(listing_key)});
    EXPECT_EQ(interests[0].second.scope, Interest::Scope::at_hand);

    Node keeper(keeper_of(listing_key));
    keeper.effects.cache[listing_key] = small_object();
    keeper.mover.receive(reader_of(listing_key), interests[0].second, start);
    const auto answers = keeper.effects.take<Publication>();
    ASSERT_EQ(answers.size(), 1U);
    reader.mover.receive(keeper_of(listing_key), answers[0].second, start);

    const auto passed_on = reader.effects.take<Publication>();
    ASSERT_EQ(passed_on.size(), 1U);
    EXPECT_EQ(passed_on[0].first, std::vector{reader.asker});
    EXPECT_TRUE(reader.effects.reads.empty());
    EXPECT_EQ(reader.mover.counters().got_back, 1U);
    EXPECT_EQ(reader.mover.pending(), 0U);
}

TEST(Mover, WhatItsKeeperHasNoLongerIsReadAgainForThoseWhoAsk) {
    Forgetful reader;
    Node keeper(keeper_of(listing_key));
    keeper.mover.receive(reader_of(listing_key), reader.effects.take<Interest>().at(0).second, start);
    EXPECT_TRUE(keeper.effects.reads.empty());
    EXPECT_EQ(keeper.mover.pending(), 0U);
    const auto declines = keeper.effects.take<Decline>();
    ASSERT_EQ(declines.size(), 1U);
    EXPECT_EQ(declines[0].first, std::vector{reader_of(listing_key)});

    reader.mover.receive(keeper_of(listing_key), declines[0].second, start);
    EXPECT_EQ(reader.effects.reads, std::vector{listing_key});
    reader.mover.read_done(listing_key, small_object(), start);
    const auto publications = reader.effects.take<Publication>();
    ASSERT_EQ(publications.size(), 1U);
    EXPECT_EQ(publications[0].first, std::vector{reader.asker});
    EXPECT_EQ(reader.mover.counters().direct_reads, 0U);
}

TEST(Mover, ALostKeeperIsNotWaitedFor) {
    Forgetful reader;
    reader.lose(keeper_of(listing_key), start + 1s, start);
    EXPECT_EQ(reader.effects.reads, std::vector{listing_key});
}

TEST(Mover, OnlyTheKeeperKeepsAnObjectForTheJob) {
    for (std::uint32_t rank = 0; rank < Node::default_size; ++rank) {
        if (Rank{rank} == reader_of(listing_key)) {
            continue;
        }
        Node node(Rank{rank});
        node.mover.receive(node.parent(listing_key), broadcast_of(listing_key, small_object(), 1, 1), start);
        EXPECT_EQ(node.effects.retention == Retention::for_job, Rank{rank} == keeper_of(listing_key)) << rank;
    }
}

TEST(Mover, BroadcastsPassOverANodeToWhichTooMuchIsOnItsWay) {
    Node reader(reader_of(listing_key));
    const auto children = reader.children(listing_key);
    reader.effects.backlogs[children.at(0)] = 17U << 20;
    reader.mover.want(listing_key, start);
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
        reader.mover.want(listing_key, start);
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
    reader.mover.want(listing_key, start);
    EXPECT_EQ(reader.effects.read_for, ReadFor::others);
    Node asked(at(listing_key, 9));
    asked.mover.want(listing_key, start);
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

// In the turn of the tree that an extent travels by: the only child of the reader, and a child of that one.
Rank relay_of(const ObjectKey& key) {
    return Node(reader_of(listing_key)).membership.children(reader_of(listing_key), key.index).at(0);
}
Rank below_relay(const ObjectKey& key) {
    return Node(relay_of(key)).membership.children(reader_of(listing_key), key.index).at(0);
}

TEST(Mover, ALargeFileIsSentToThoseWhoAskUntilItIsShared) {
    Node reader(reader_of(listing_key));
    EXPECT_EQ(addressees(reader, extent_of("x.so", 0), at(listing_key, 1), Rank{7}), 2U) << "as a small file";
    for (std::uint32_t index = 1; index <= 5; ++index) {
        const ObjectKey key = extent_of("x.so", index);
        // Three nodes of 15 make a shared file of it.
        EXPECT_EQ(addressees(reader, key, below_relay(key), Rank{index}), index < 3 ? 1U : 2U) << index;
    }
    const ObjectKey key = extent_of("y.so", 1);
    Node always(reader_of(listing_key), {.push = Push::always});
    EXPECT_EQ(addressees(always, key, below_relay(key), Rank{1}), 2U);
    Node never(reader_of(listing_key), {.push = Push::never});
    EXPECT_EQ(addressees(never, listing_key, at(listing_key, 9), Rank{1}), 1U);
}

TEST(Mover, OfManySmallFilesSomeAreSentToThoseWhoAskToSeeWhoDoes) {
    Node reader(reader_of(listing_key));
    std::size_t samples = 0;
    for (std::uint32_t number = 0; number < 200; ++number) {
        const ObjectKey key = extent_of(std::to_string(number), 0);
        const std::size_t count = addressees(reader, key, at(listing_key, 9), at(listing_key, 9));
        // Others are pushed to both children of the reader, and sent to this one.
        ASSERT_TRUE(count == 3 || (count == 1 && number >= 64)) << number;
        samples += count == 1 ? 1 : 0;
    }
    EXPECT_GT(samples, 8U);
    EXPECT_LT(samples, 32U);
}

// The reader has noticed that nodes 1 and 2 read a large file each, and small ones by turns.
struct ReaderOfShards : Node {
    ReaderOfShards() : Node(reader_of(listing_key)) {
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
        asker.mover.want(key, start);
        relay.mover.receive(asker.membership.self(), asker.effects.take<Interest>().at(0).second, start);
        reader.mover.receive(relay.membership.self(), relay.effects.take<Interest>().at(0).second, start);
        EXPECT_TRUE(reader.effects.reads.empty());
        const auto decline = reader.effects.take<Decline>().at(0).second;
        EXPECT_EQ(decline.reason, Decline::Reason::unshared);

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
        both.mover.want(key, start);
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
    EXPECT_EQ(ask(5), 0U);
    const auto answers = reader.effects.take<Publication>();
    ASSERT_EQ(answers.size(), 2U);
    EXPECT_EQ(answers[0].first, std::vector{at(listing_key, 6)});
    EXPECT_EQ(answers[1].first, std::vector{at(listing_key, 5)});
}

TEST(Mover, ForgettingBroadcastsCostsRepeatsOnly) {
    Node node(at(listing_key, 1), {.broadcasts_remembered_max = 2});
    for (std::uint64_t i = 1; i <= 5; ++i) {
        const ObjectKey key{ObjectKind::extent, listing_key.path + "/" + std::to_string(i)};
        node.mover.receive(reader_of(listing_key), broadcast_of(key, small_object(), i, i), start);
    }
    EXPECT_EQ(node.effects.take<Publication>().size(), 5U);
    EXPECT_EQ(node.effects.delivered.size(), 5U);
}

}  // namespace
}  // namespace copper
