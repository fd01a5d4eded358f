// What a node reads, in its office or for itself.
#include "collectives/mover.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/mover_fixture.hpp"

namespace copper {
namespace {

using namespace test;

TEST(MoverReading, OneWantIsOneReadAtTheReaderThenABroadcast) {
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

TEST(MoverReading, OnlyWhatIsReadForOthersMayWaitForThem) {
    Node reader(reader_of(listing_key));
    reader.effects.backlogs[at(listing_key, 5)] = 128U << 20;
    reader.mover.want(listing_key, FetchFor::demand, start);
    EXPECT_TRUE(reader.effects.reads.empty());
    reader.effects.backlogs.clear();
    reader.mover.backlog_shrank(start);
    EXPECT_EQ(reader.effects.reads.size(), 1U);
    Node asked(at(listing_key, 9));
    asked.effects.backlogs[at(listing_key, 5)] = 128U << 20;
    asked.mover.want(listing_key, FetchFor::demand, start);
    asked.mover.tick(start + Mover::Options{}.deadline);
    EXPECT_EQ(asked.effects.reads.size(), 1U);
}

ObjectKey numbered(int number) {
    return {ObjectKind::entry, listing_key.path + "/" + std::to_string(number)};
}

// A reader with one reader thread, which reads numbered(0), and a queue.
struct BusyReader : Node {
    explicit BusyReader(std::size_t entries_max = 65536)
        : Node(reader_of(numbered(0)), {.deadline = 10s,
                                        .waiting = {.entries_max = entries_max},
                                        .reading = {.reads_max = 1},
                                        .spreading = {.push = Push::never}}) {
        ask(0, FetchFor::demand);
        EXPECT_EQ(effects.reads, std::vector{numbered(0)});
    }
    void ask(int number, FetchFor why, TimePoint now = start) {
        mover.receive(asker, Interest{.key = numbered(number), .origin = asker, .why = why}, now);
    }
    // The next read begins.
    void ends(int number, TimePoint now) { mover.read_done(numbered(number), small_object(), now); }

    const Rank asker = at(numbered(0), 1);
};

TEST(MoverReading, AQueuedReadIsNotSlow) {
    BusyReader reader;
    reader.ask(1, FetchFor::demand);
    reader.ask(2, FetchFor::demand);
    for (int i = 0; i < 3; ++i) {
        pass(reader, start + i * 4s, start + i * 4s + 4s - 1ms);
        reader.ends(i, start + (i + 1) * 4s);
    }
    EXPECT_EQ(reader.effects.reads.size(), 3U);
    EXPECT_EQ(reader.mover.counters().passed_on, 0U);
    std::map<ObjectKey, std::vector<Working>> told;
    for (const auto& [to, working] : reader.effects.take<Working>()) {
        told[working.key].push_back(working);
    }
    const std::vector<Working>& words = told[numbered(2)];
    ASSERT_GE(words.size(), 3U);
    EXPECT_GE(words[0].place_in_queue, 1U) << "it is queued";
    EXPECT_EQ(words.back().place_in_queue, 0U) << "it has begun";
    for (const Working& working : words) {
        EXPECT_LT(working.still, 4s) << "the filesystem makes progress";
    }
}

// What another reader answers to a read that was passed on.
Publication answer_of(const Interest& interest, Rank reader) {
    return {
        .key = interest.key, .root = reader, .spread = Publication::Spread::asked, .object = small_object()};
}

TEST(MoverReading, AReaderThatHangsGivesItsQueueAway) {
    BusyReader reader;
    reader.ask(1, FetchFor::demand);
    reader.ask(2, FetchFor::demand);
    pass(reader, start, start + 5s);
    const auto interests = reader.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U) << "the read that hangs";
    EXPECT_EQ(interests[0].second.key, numbered(0));
    EXPECT_EQ(interests[0].second.findings.at(0).error, ETIMEDOUT);
    // Another node could read it: this one leaves its office, and its queue to that node.
    const Rank other = interests[0].first.at(0);
    reader.mover.receive(other, answer_of(interests[0].second, other), start + 10s - 1ms);
    EXPECT_EQ(reader.mover.counters().resignations, 1U);
    reader.mover.membership_changed(start + 10s);
    reader.mover.tick(start + 10s);
    const auto handed_over = reader.effects.take<Interest>();
    ASSERT_EQ(handed_over.size(), 2U);
    for (const auto& [to, interest] : handed_over) {
        EXPECT_TRUE(interest.findings.empty());
    }
    EXPECT_EQ(reader.mover.reads_queued(), 0U);
}

TEST(MoverReading, AnotherReaderThatIsAsSlowUnseatsNobody) {
    BusyReader reader;
    pass(reader, start, start + 5s);
    const auto interests = reader.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    const Rank other = interests[0].first.at(0);
    reader.mover.receive(other, answer_of(interests[0].second, other), start + 10s);
    EXPECT_EQ(reader.mover.counters().resignations, 0U) << "the filesystem is slow for both";
}

TEST(MoverReading, AQueuedReadThatNobodyAwaitsIsDropped) {
    BusyReader reader;
    reader.ask(1, FetchFor::demand);
    reader.ask(2, FetchFor::demand);
    reader.mover.receive(Rank{3},
                         Publication{.key = numbered(1),
                                     .root = Rank{3},
                                     .spread = Publication::Spread::asked,
                                     .object = small_object()},
                         start);
    EXPECT_EQ(reader.mover.reads_queued(), 1U) << "the object came another way";
    reader.note({.rank = reader.asker, .incarnation = 1, .state = NodeState::dead}, start);
    EXPECT_EQ(reader.mover.reads_queued(), 0U) << "who asked has ended";
    reader.ends(0, start);
    EXPECT_EQ(reader.effects.reads.size(), 1U);
    EXPECT_EQ(reader.mover.pending(), 0U);
}

TEST(MoverReading, DemandOfANodeMakesTheGuessOfAnotherDemand) {
    for (const bool is_same_node : {true, false}) {
        BusyReader reader;
        reader.ask(1, FetchFor::guess);
        reader.ask(2, FetchFor::demand);
        reader.ask(3, FetchFor::guess);
        const Rank who = is_same_node ? reader.asker : at(numbered(0), 2);
        reader.mover.receive(who, Interest{.key = numbered(3), .origin = who, .is_urging = is_same_node},
                             start);
        for (const int number : {0, 2, 3, 1}) {
            EXPECT_EQ(reader.effects.reads.back(), numbered(number));
            reader.ends(number, start);
        }
    }
}

TEST(MoverReading, AFullTableIsAQueueToo) {
    BusyReader reader(2);
    reader.ask(1, FetchFor::demand);
    EXPECT_TRUE(reader.effects.take<Working>().empty());
    reader.ask(2, FetchFor::demand);
    const auto words = reader.effects.take<Working>();
    ASSERT_EQ(words.size(), 1U);
    EXPECT_EQ(words[0].first, std::vector{reader.asker});
    EXPECT_EQ(words[0].second.key, numbered(2));
    EXPECT_EQ(words[0].second.place_in_queue, 2U);

    Node asker(reader.asker, deadline(10s));
    asker.mover.want(numbered(2), FetchFor::demand, start);
    asker.mover.receive(reader.membership.self(), words[0].second, start + 1s);
    pass(asker, start + 1s, start + 8s);
    EXPECT_EQ(asker.mover.counters().direct_reads, 0U);
    EXPECT_GE(asker.effects.take<Interest>().size(), 2U) << "it asks again";
}

// What a profile foretells is read behind demand, and goes to all nodes, although one node asks for it.
TEST(MoverReading, WhatEveryoneWillUseIsReadAheadAndPushed) {
    Node reader(reader_of(listing_key), {});
    const Rank asker = reader.children(listing_key)[0];
    reader.mover.receive(asker, Interest{.key = listing_key, .origin = asker, .why = FetchFor::everyone},
                         start);
    reader.mover.read_done(listing_key, large_object(), start);
    const auto sent = reader.effects.take<Publication>();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].second.spread, Publication::Spread::everyone);
    EXPECT_EQ(reader.effects.for_all, std::vector{listing_key});
}

TEST(MoverReading, WhatIsNotSharedIsReadHereAndNeverSentOrAnswered) {
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

TEST(MoverReading, AReaderTellsItsAskersThatItReads) {
    Node reader(reader_of(listing_key), deadline(8s));
    reader.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
    std::chrono::milliseconds spent(0);
    for (int i = 1; i <= 30; ++i) {
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

TEST(MoverReading, TheLastNodeReadsInTheOfficeOfAll) {
    Node node(at(listing_key, 3));
    node.mover.want(listing_key, FetchFor::demand, start);
    node.suspect_all_others(start + 1s);
    EXPECT_EQ(node.effects.reads, std::vector{listing_key});
    EXPECT_EQ(node.mover.counters().direct_reads, 0U) << "it is the reader";
    node.mover.read_done(listing_key, small_object(), start + 1s);
    EXPECT_EQ(node.effects.delivered.size(), 1U);
}

TEST(MoverReading, AnExpiredErrorIsAskedForAgainAllTheWay) {
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
        reader.mover.read_done(listing_key, make_error(ELOOP), now);
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

TEST(MoverReading, ACacheThatKeepsNothingStillAnswersEveryWant) {
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

TEST(MoverReading, WhatWasEvictedIsReadAgainForThoseWhoAsk) {
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

// A reader that cannot read, or is slow.

// The reader, whose read has failed with what may be the fault of its own mount, and the next reader, which
// it has asked.
struct BrokenReader : Node {
    explicit BrokenReader(ObjectPtr met = make_error(EIO))
        : Node(reader_of(listing_key), deadline(10s)),
          next(membership.next_reader(listing_key, std::vector{membership.self()}).value(), deadline(10s)) {
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

TEST(MoverReading, AReaderThatCannotReadWhatAnotherCanResignsForAWhile) {
    const ObjectPtr nothing = make_object(Directory());
    for (const ObjectPtr& met :
         {make_error(EIO), make_error(ENOTCONN), make_error(ECONNABORTED), make_error(ENOENT),
          make_error(EMFILE), make_error(EACCES), make_error(EKEYEXPIRED), make_error(EKEYREVOKED),
          make_error(ENOKEY), make_error(ENETDOWN), make_error(ENETUNREACH), make_error(EPIPE),
          make_error(EPROTO), make_error(EPERM), make_error(EDQUOT), nothing}) {
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

TEST(MoverReading, AnErrorThatTwoNodesMeetIsTheFilesystems) {
    for (const ObjectPtr& met : {make_error(EIO), make_error(EACCES), make_object(Directory())}) {
        BrokenReader reader(met);
        reader.next_reads(met);
        ASSERT_EQ(reader.effects.delivered.size(), 1U);
        const Object& told = *reader.effects.delivered[0];
        EXPECT_EQ(told.error(), met->error());
        EXPECT_EQ(told.content.index(), met->content.index());
        EXPECT_EQ(told.lifetime, met->lifetime ? std::optional(2 * error_lifetime) : std::nullopt)
            << "as many reads a second as an error that nobody doubts";
        EXPECT_FALSE(reader.has_resigned()) << "a file that is broken for all unseats no reader";
        EXPECT_TRUE(reader.next.effects.take<Interest>().empty());
    }
}

TEST(MoverReading, WhereTwoReadersMeetDifferentErrorsAThirdDecides) {
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

// Its filesystem hangs. What this node finds by itself is as good as nothing for the others, but not for its
// own programs, which would find the same without Copper.
TEST(MoverReading, ASecondOpinionThatDoesNotComeIsAwaitedForTwoDeadlines) {
    Node reader(reader_of(listing_key), deadline(10s));
    reader.mover.want(listing_key, FetchFor::demand, start);
    reader.mover.read_done(listing_key, make_object(Directory()), start);
    const auto asked = reader.effects.take<Interest>();
    ASSERT_EQ(asked.size(), 1U);
    const Rank next = asked[0].first.at(0);
    for (auto spent = 2500ms; spent <= 20s; spent += 2500ms) {
        EXPECT_TRUE(reader.effects.delivered.empty());
        reader.mover.receive(next, Working{.key = listing_key, .spent = spent, .still = spent},
                             start + spent);
        pass(reader, start + spent, start + spent + 2s);
    }
    ASSERT_EQ(reader.effects.reads.size(), 2U) << "it reads once more";
    reader.mover.read_done(listing_key, make_object(Directory()), start + 23s);
    ASSERT_EQ(reader.effects.delivered.size(), 1U);
    EXPECT_EQ(reader.effects.delivered[0]->lifetime, doubtful_lifetime);
}

TEST(MoverReading, WhereNobodyElseIsLeftTheReaderBelievesItself) {
    Node reader(reader_of(listing_key));
    reader.suspect_all_others(start);
    reader.mover.want(listing_key, FetchFor::demand, start);
    reader.mover.read_done(listing_key, make_error(EIO), start);
    ASSERT_EQ(reader.effects.delivered.size(), 1U);
    EXPECT_EQ(reader.effects.delivered[0]->error(), make_error(EIO)->error());
}

// What it found empty it tells as what was asked for; but not for ever, since nobody has confirmed it.
TEST(MoverReading, WhereNobodyElseIsLeftAnymoreTheReaderTellsWhatItFound) {
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
        reader.suspect_all_others(start);
        ASSERT_EQ(reader.effects.delivered.size(), 1U) << to_string(key);
        const Object& told = *reader.effects.delivered[0];
        EXPECT_EQ(told.content.index(), met->content.index()) << to_string(key);
        EXPECT_EQ(told.error(), met->error());
        EXPECT_EQ(told.lifetime, met->lifetime.value_or(doubtful_lifetime)) << to_string(key);
    }
}

TEST(MoverReading, AnEmptyDirectoryIsBelievedForEverOnlyIfItCannotBeOneNodesTrouble) {
    const ObjectPtr empty = make_object(Directory());
    Node among_suspects(reader_of(listing_key));
    among_suspects.suspect_all_others(start);
    among_suspects.mover.want(listing_key, FetchFor::demand, start);
    among_suspects.mover.read_done(listing_key, empty, start);
    EXPECT_EQ(among_suspects.effects.delivered.at(0)->lifetime, doubtful_lifetime);

    Node direct(at(listing_key, 2), deadline(10s));
    direct.mover.want(listing_key, FetchFor::demand, start);
    pass(direct, start, start + 10s);
    ASSERT_EQ(direct.effects.reads, std::vector{listing_key});
    direct.mover.read_done(listing_key, empty, start + 10s);
    EXPECT_EQ(direct.effects.delivered.at(0)->lifetime, doubtful_lifetime);
}

// A reader that is slow, and the only other one, which finds that its own mount is perhaps missing.
struct SlowReaderAndEmptyMount {
    SlowReaderAndEmptyMount()
        : slow(reader_of(listing_key), deadline(10s)), other(rank_of_other(), deadline(10s)) {
        slow.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
        pass(slow, start, start + 5s);
        for (std::uint32_t rank = 0; rank < Place::size; ++rank) {
            if (Rank{rank} != other.membership.self() && Rank{rank} != slow.membership.self()) {
                other.suspect(Rank{rank}, start);
            }
        }
        other.mover.receive(slow.membership.self(), slow.effects.take<Interest>().at(0).second, start + 5s);
        other.mover.read_done(listing_key, make_object(Directory()), start + 6s);
        EXPECT_TRUE(other.effects.delivered.empty()) << "the slow one may still read better";
        const auto interests = other.effects.take<Interest>();
        EXPECT_EQ(interests.at(0).first, std::vector{slow.membership.self()});
        slow.mover.receive(other.membership.self(), interests.at(0).second, start + 6s);
        EXPECT_EQ(slow.effects.reads.size(), 1U);
    }
    Rank rank_of_other() const {
        return slow.membership.next_reader(listing_key, std::vector{slow.membership.self()}).value();
    }
    // What the slow one reads in the end; what the other one then hears of it.
    ObjectPtr ends_with(const ObjectPtr& object) {
        slow.mover.read_done(listing_key, object, start + 7s);
        for (const auto& [to, publication] : slow.effects.take<Publication>()) {
            if (std::find(to.begin(), to.end(), other.membership.self()) != to.end()) {
                other.mover.receive(slow.membership.self(), publication, start + 7s);
            }
        }
        return other.effects.delivered.size() == 1 ? other.effects.delivered[0] : nullptr;
    }

    Node slow;
    Node other;
};

TEST(MoverReading, ASlowReaderIsWaitedForWhereTheOthersFindTrouble) {
    const ObjectPtr object = small_object();
    EXPECT_EQ(SlowReaderAndEmptyMount().ends_with(object), object);

    const auto agreed = SlowReaderAndEmptyMount().ends_with(make_object(Directory()));
    ASSERT_NE(agreed, nullptr);
    EXPECT_FALSE(agreed->lifetime) << "both found nothing";

    SlowReaderAndEmptyMount trouble;
    EXPECT_EQ(trouble.ends_with(make_error(EIO)), nullptr) << "nobody confirms either";
    const auto declines = trouble.slow.effects.take<Decline>();
    ASSERT_EQ(declines.size(), 1U);
    EXPECT_EQ(declines[0].second.found, (Finding{trouble.slow.membership.self(), EIO}));
    ASSERT_EQ(trouble.slow.effects.delivered.size(), 1U);
    EXPECT_FALSE(trouble.slow.effects.delivered[0]->is_for_others);
    // Nor is it read again for each node that asks.
    const Rank late = trouble.slow.children(listing_key)[0];
    trouble.slow.mover.receive(late, Interest{.key = listing_key}, start + 7s);
    EXPECT_EQ(trouble.slow.effects.take<Decline>().at(0).first, std::vector{late});
    EXPECT_EQ(trouble.slow.effects.reads.size(), 1U);

    SlowReaderAndEmptyMount lost;
    lost.other.suspect(lost.slow.membership.self(), start + 7s);
    ASSERT_EQ(lost.other.effects.delivered.size(), 1U);
    EXPECT_EQ(lost.other.effects.delivered[0]->lifetime, doubtful_lifetime);
}

TEST(MoverReading, WhereTheNextReaderIsLostAThirdReads) {
    BrokenReader reader;
    reader.suspect(reader.next.membership.self(), start);
    const auto interests = reader.effects.take<Interest>();
    ASSERT_EQ(interests.size(), 1U);
    EXPECT_NE(interests[0].first, std::vector{reader.next.membership.self()});
    EXPECT_EQ(interests[0].second.findings.size(), 1U);
}

TEST(MoverReading, AnErrorOfThePathItselfIsPublishedAtOnce) {
    for (const int error : {EAGAIN, E2BIG, EISDIR, ELOOP, ENAMETOOLONG, ENODATA, ENOTSUP}) {
        Node reader(reader_of(listing_key));
        reader.mover.receive(at(listing_key, 1), Interest{.key = listing_key}, start);
        reader.mover.read_done(listing_key, make_error(error), start);
        EXPECT_EQ(reader.effects.take<Publication>().size(), 1U) << error;
        EXPECT_TRUE(reader.effects.take<Interest>().empty()) << error;
    }
}

TEST(MoverReading, ASlowReaderHasOneOtherReadTooAndTheFirstAnswerWins) {
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
TEST(MoverReading, AReaderThatHasMuchToSendIsNotSlow) {
    Node reader(reader_of(listing_key), deadline(10s));
    reader.effects.backlogs[at(listing_key, 5)] = 128U << 20;
    reader.mover.want(listing_key, FetchFor::demand, start);
    pass(reader, start, start + 9s);
    EXPECT_EQ(reader.mover.counters().passed_on, 0U);
    reader.effects.backlogs.clear();
    reader.mover.backlog_shrank(start + 9s);
    pass(reader, start + 9s, start + 14s);
    EXPECT_EQ(reader.mover.counters().passed_on, 1U);
}

// Work that lasts is told in growing numbers, whoever does it: a reader goes on counting from what others
// have spent.
TEST(MoverReading, TheNextReaderCountsTheTimeOfTheFirst) {
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

TEST(MoverReading, ANewReaderCountsOnFromWhatItHasPassedOn) {
    int new_readers = 0;
    for (std::uint32_t position = 1; position < Node::size; ++position) {
        Node node(at(listing_key, position), deadline(8s));
        const Rank asker = at(listing_key, position + 1);
        node.mover.receive(asker, Interest{.key = listing_key}, start);
        node.mover.receive(reader_of(listing_key), Working{.key = listing_key, .spent = 60s}, start);
        node.suspect(reader_of(listing_key), start);
        if (node.reader(listing_key) == node.membership.self()) {
            ++new_readers;
            node.effects.take<Working>();
            node.mover.tick(start + 2s);
            const auto words = node.effects.take<Working>();
            ASSERT_EQ(words.size(), 1U);
            EXPECT_EQ(words[0].first, std::vector{asker});
            EXPECT_GT(words[0].second.spent, 60s);
        }
    }
    EXPECT_EQ(new_readers, 1);
}

}  // namespace
}  // namespace copper
