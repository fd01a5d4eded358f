#include "collectives/waiting.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>

namespace copper {
namespace {

using namespace std::chrono_literals;
using Joined = Waiting::Joined;
using Next = Waiting::Due::Next;

constexpr TimePoint start{1h};
constexpr Rank self{0}, parent{1}, grandparent{2}, reader{3}, asker{4}, other_asker{5};
const ObjectKey key{ObjectKind::directory, "/app/lib"};
const ObjectKey other_key{ObjectKind::directory, "/app/other"};

class WaitingTest : public testing::Test {
  protected:
    std::optional<Joined> want(TimePoint now, std::chrono::microseconds early = 0us) {
        return waiting.add_local(key, FetchFor::demand, self, early, now);
    }
    void want_and_ask(std::chrono::microseconds early = 0us) {
        want(start, early);
        waiting.ask(key, parent, reader, start);
    }
    bool note_work(std::chrono::milliseconds spent, TimePoint now, std::chrono::milliseconds still) {
        return waiting.note_work({.key = key, .spent = spent, .still = still}, Waiting::Trust::full, now);
    }
    // Nothing has moved since the start.
    bool note_work(std::chrono::milliseconds spent, TimePoint now) {
        return note_work(spent, now, std::chrono::floor<std::chrono::milliseconds>(now - start));
    }
    Asked asked() { return std::get<Asked>(waiting.find(key)->state); }
    // What to do now for the only object.
    std::optional<Next> due(TimePoint now) {
        const auto due = waiting.take_due(now);
        EXPECT_TRUE(!due || due->key == key);
        return due ? std::optional(due->next) : std::nullopt;
    }

    Waiting waiting{{.deadline = 9s, .deadlines_max = 4, .entries_max = 3}};
};

TEST_F(WaitingTest, SilenceMeansAnotherWayTwiceAndThenADirectRead) {
    want_and_ask();
    for (const std::uint32_t silences : {1U, 2U}) {
        const TimePoint third = start + silences * 3s;
        EXPECT_EQ(waiting.next_deadline(), third);
        EXPECT_EQ(due(third - 1us), std::nullopt);
        EXPECT_EQ(due(third), Next::ask_another_way);
        EXPECT_EQ(due(third), std::nullopt) << "once";
        EXPECT_EQ(waiting.find(key)->attempt, silences);
        EXPECT_EQ(asked().ways_tried, silences);
        waiting.ask(key, grandparent, reader, third);
        EXPECT_EQ(asked().ways_tried, silences) << "asking is no sign of work";
    }
    EXPECT_EQ(due(start + 9s - 1us), std::nullopt);
    EXPECT_EQ(due(start + 9s), Next::read_directly);
    EXPECT_FALSE(waiting.next_deadline());
}

TEST_F(WaitingTest, ANodeTurnsToTheFilesystemAsEarlyAsItsTurnIs) {
    want_and_ask(2s);
    EXPECT_EQ(due(start + 3s), Next::ask_another_way);
    waiting.ask(key, parent, reader, start + 3s);
    EXPECT_EQ(due(start + 6s), Next::ask_another_way);
    waiting.ask(key, parent, reader, start + 6s);
    EXPECT_EQ(waiting.next_deadline(), start + 7s);
    EXPECT_EQ(due(start + 7s), Next::read_directly);
}

// However many nodes are lost, and whenever: the application does not wait past its deadline.
TEST_F(WaitingTest, AskingOthersDoesNotPutOffTheDeadline) {
    want_and_ask();
    for (const auto when : {5s, 6s, 7s}) {
        waiting.ask(key, grandparent, reader, start + when);
    }
    EXPECT_EQ(waiting.next_deadline(), start + 9s);
    EXPECT_EQ(due(start + 9s), Next::read_directly);
}

TEST_F(WaitingTest, WorkPutsTheDeadlineOffAFewTimes) {
    want_and_ask();
    for (auto spent = 2s; spent < 36s; spent += 2s) {
        const TimePoint now = start + spent;
        ASSERT_EQ(due(now), std::nullopt) << "it asks nobody meanwhile";
        ASSERT_TRUE(note_work(spent, now));
        ASSERT_EQ(waiting.find(key)->deadline, start + std::min<std::chrono::seconds>(spent + 9s, 36s));
        ASSERT_EQ(waiting.next_deadline(), start + std::min<std::chrono::seconds>(spent + 3s, 36s));
    }
    EXPECT_EQ(due(start + 36s - 1us), std::nullopt);
    EXPECT_EQ(due(start + 36s), Next::read_directly) << "four deadlines, whatever others say";
}

TEST_F(WaitingTest, AQueueThatMovesPutsTheDeadlineOffForAsLongAsItMoves) {
    want_and_ask();
    for (auto spent = 2s; spent <= 100s; spent += 2s) {
        const TimePoint now = start + spent;
        ASSERT_EQ(due(now), std::nullopt) << "it asks nobody meanwhile";
        ASSERT_TRUE(note_work(spent, now, 1s));
        ASSERT_EQ(waiting.find(key)->deadline, now + 9s);
    }
    // Then it stands still.
    for (auto spent = 102s; spent < 135s; spent += 2s) {
        ASSERT_EQ(due(start + spent), std::nullopt);
        ASSERT_TRUE(note_work(spent, start + spent, spent - 99s));
    }
    EXPECT_EQ(due(start + 135s - 1us), std::nullopt);
    EXPECT_EQ(due(start + 135s), Next::read_directly) << "four deadlines after it last moved";
}

TEST_F(WaitingTest, AStillnessBeyondAllMeasureShortensNothing) {
    want_and_ask();
    EXPECT_TRUE(note_work(1ms, start + 1s, std::chrono::milliseconds::max()));
    EXPECT_EQ(waiting.find(key)->deadline, start + 10s);
    EXPECT_EQ(waiting.find(key)->deadline_max, start + 36s);
}

TEST_F(WaitingTest, DemandThatJoinsAGuessUrgesItOnce) {
    for (const FetchFor guess : {FetchFor::guess, FetchFor::everyone}) {
        EXPECT_EQ(waiting.add_local(key, guess, self, 0us, start), Joined::first);
        waiting.ask(key, parent, reader, start);
        EXPECT_EQ(waiting.add_local(key, FetchFor::guess, self, 0us, start), std::nullopt);
        EXPECT_EQ(want(start + 1s), Joined::urges);
        EXPECT_EQ(waiting.find(key)->why, FetchFor::demand);
        EXPECT_EQ(waiting.find(key)->deadline, start + 10s) << "the program has its whole time";
        EXPECT_EQ(want(start + 2s), std::nullopt);
        waiting.settle(key);

        EXPECT_EQ(waiting.add_asker(key, asker, {.key = key, .why = guess}, start), Joined::first);
        EXPECT_EQ(waiting.add_asker(key, other_asker, {.key = key, .why = guess}, start), Joined::later);
        EXPECT_EQ(waiting.add_asker(key, asker, {.key = key}, start), Joined::urges);
        EXPECT_EQ(waiting.find(key)->why, FetchFor::demand);
        EXPECT_EQ(waiting.add_asker(key, other_asker, {.key = key}, start), Joined::later);
        EXPECT_EQ(want(start), Joined::later);
        waiting.settle(key);
    }
}

TEST_F(WaitingTest, OnlyMoreWorkThanBeforeIsNews) {
    EXPECT_FALSE(note_work(1s, start)) << "nobody waits for it";
    want_and_ask();
    EXPECT_TRUE(note_work(2s, start + 1s));
    EXPECT_FALSE(note_work(2s, start + 2s)) << "it went in a circle";
    EXPECT_FALSE(note_work(1s, start + 2s));
    EXPECT_EQ(waiting.next_deadline(), start + 4s);
    EXPECT_EQ(waiting.find(key)->deadline, start + 10s);

    EXPECT_EQ(due(start + 4s), Next::ask_another_way);
    EXPECT_EQ(asked().ways_tried, 1U);
    EXPECT_TRUE(note_work(1s, start + 4s)) << "whoever works now may have begun later";
    EXPECT_EQ(asked().ways_tried, 0U);
    waiting.ask(key, grandparent, reader, start + 4s);
    EXPECT_TRUE(note_work(1ms, start + 4s)) << "another node was asked";

    waiting.read_here(key);
    EXPECT_FALSE(note_work(60s, start + 5s)) << "this node reads it itself";
    EXPECT_FALSE(waiting.next_deadline());
}

TEST_F(WaitingTest, AWantThatJoinsAnOldInterestHasItsWholeTime) {
    EXPECT_EQ(waiting.add_asker(key, asker, {.key = key}, start), Joined::first);
    waiting.ask(key, parent, reader, start);
    EXPECT_EQ(waiting.add_asker(key, asker, {.key = key, .attempt = 1}, start + 3s), Joined::again);
    waiting.ask(key, grandparent, reader, start + 3s);

    EXPECT_EQ(want(start + 8s), Joined::later);
    EXPECT_EQ(asked().ways_tried, 0U);
    for (const auto when : {11s, 14s}) {
        EXPECT_EQ(waiting.next_deadline(), start + when);
        EXPECT_EQ(due(start + when), Next::ask_another_way);
        waiting.ask(key, parent, reader, start + when);
    }
    EXPECT_EQ(due(start + 17s), Next::read_directly);
}

TEST_F(WaitingTest, WhatOnlyOthersWantIsAskedForAgainWhenTheyDo) {
    EXPECT_EQ(waiting.add_asker(key, asker, {.key = key, .attempt = 1}, start), Joined::first);
    waiting.ask(key, parent, reader, start);
    EXPECT_EQ(waiting.find(key)->attempt, 1U);
    EXPECT_EQ(waiting.next_deadline(), start + 9s);
    EXPECT_EQ(waiting.add_asker(key, other_asker, {.key = key, .attempt = 1}, start + 1s), Joined::later);
    EXPECT_EQ(waiting.add_asker(key, asker, {.key = key, .attempt = 2}, start + 3s), Joined::again);
    EXPECT_EQ(asked().ways_tried, 1U);
    waiting.ask(key, grandparent, reader, start + 3s);
    EXPECT_EQ(waiting.find(key)->attempt, 2U);
    EXPECT_EQ(waiting.add_asker(key, other_asker, {.key = key, .attempt = 2}, start + 4s), Joined::later)
        << "each attempt once";
    EXPECT_EQ(due(start + 9s), Next::give_up);
}

TEST_F(WaitingTest, ARepeatedWantChangesNothing) {
    EXPECT_EQ(want(start), Joined::first);
    waiting.ask(key, parent, reader, start);
    EXPECT_EQ(want(start + 2s), std::nullopt);
    EXPECT_EQ(waiting.find(key)->deadline, start + 9s);
    EXPECT_EQ(waiting.next_deadline(), start + 3s);
    EXPECT_EQ(waiting.find(key)->origin, self);
    EXPECT_EQ(waiting.size(), 1U);
}

TEST_F(WaitingTest, AskersOfAnObjectShareOneEntry) {
    using Wanted = Interest::Wanted;
    EXPECT_EQ(waiting.add_asker(key, asker,
                                {.key = key,
                                 .hops = 2,
                                 .origin = Rank{9},
                                 .wanted = Wanted::by_several,
                                 .why = FetchFor::everyone},
                                start),
              Joined::first);
    waiting.ask(key, parent, reader, start);
    EXPECT_EQ(
        waiting.add_asker(key, other_asker,
                          {.key = key, .hops = 5, .origin = Rank{8}, .why = FetchFor::guess}, start + 1s),
        Joined::later);
    EXPECT_EQ(waiting.add_asker(key, asker, {.key = key, .why = FetchFor::guess}, start + 1s), Joined::later);
    const Wait& wait = *waiting.find(key);
    EXPECT_EQ(wait.nodes(), 2U);
    EXPECT_EQ(wait.why, FetchFor::everyone);
    EXPECT_EQ(want(start + 2s), Joined::urges);
    EXPECT_EQ(wait.askers, (std::vector{asker, other_asker}));
    EXPECT_EQ(wait.nodes(), 3U);
    // As the first one said it.
    EXPECT_EQ(wait.origin, Rank{9});
    EXPECT_EQ(wait.wanted, Wanted::by_several);
    EXPECT_EQ(wait.hops, 3U);

    EXPECT_EQ(waiting.settle(key), (std::vector{asker, other_asker}));
    EXPECT_EQ(waiting.find(key), nullptr);
    EXPECT_FALSE(waiting.next_deadline());
    EXPECT_TRUE(waiting.settle(key).empty());
}

TEST_F(WaitingTest, WhatOnlyOthersWantIsGivenUpAtTheDeadline) {
    waiting.add_asker(key, asker, {.key = key}, start);
    waiting.ask(key, parent, reader, start + 8s);
    EXPECT_EQ(waiting.next_deadline(), start + 9s);
    EXPECT_EQ(due(start + 9s), Next::give_up);
}

TEST_F(WaitingTest, WhatWaitsForItsTurnIsReadDirectly) {
    want_and_ask();
    waiting.wait_for_turn(key, start + 4s);
    EXPECT_TRUE(std::holds_alternative<InTurn>(waiting.find(key)->state));
    EXPECT_EQ(waiting.next_deadline(), start + 4s);
    EXPECT_EQ(due(start + 4s), Next::read_directly) << "even before the deadline";
}

TEST_F(WaitingTest, KnowsWhoWasAskedForWhatAndWhoseOfficeItWas) {
    const auto asked_for = [this] {
        std::vector<ObjectKey> keys;
        for (auto next = waiting.first(); next; next = waiting.next(*next)) {
            if (waiting.find(*next)->asked()) {
                keys.push_back(*next);
            }
        }
        return keys;
    };
    want_and_ask();
    EXPECT_EQ(asked().whom, parent);
    EXPECT_EQ(asked().reader, reader);
    waiting.ask(key, grandparent, Rank{7}, start);
    EXPECT_EQ(waiting.find(key)->asked(), grandparent);
    EXPECT_EQ(asked().reader, Rank{7});

    waiting.add_asker(other_key, asker, {.key = other_key}, start);
    EXPECT_EQ(waiting.awaited(), std::set{grandparent}) << "nobody was asked for the other object";
    EXPECT_EQ(asked_for(), std::vector{key});
    waiting.ask(other_key, parent, reader, start);
    EXPECT_EQ(waiting.awaited(), (std::set{parent, grandparent}));
    EXPECT_EQ(asked_for(), (std::vector{key, other_key}));
    waiting.read_here(key);
    EXPECT_EQ(waiting.awaited(), std::set{parent});
    EXPECT_EQ(asked_for(), std::vector{other_key});
    waiting.ask(key, parent, reader, start);
    waiting.settle(other_key);
    EXPECT_EQ(waiting.awaited(), std::set{parent}) << "for the first object";
    waiting.settle(key);
    EXPECT_TRUE(waiting.awaited().empty());
}

// The failure detector looks 20 times a second.
TEST_F(WaitingTest, ToKnowWhoIsAwaitedCostsNoWalkOverAllObjects) {
    const auto cpu_time_of = [this](int looks) {
        const std::clock_t begin = std::clock();
        for (int i = 0; i < looks; ++i) {
            EXPECT_EQ(waiting.awaited(), std::set{parent});
        }
        return std::clock() - begin;
    };
    const auto add = [this](int from, int to) {
        for (int i = from; i < to; ++i) {
            const ObjectKey one{.kind = ObjectKind::entry, .path = "/app/" + std::to_string(i)};
            waiting.add_local(one, FetchFor::demand, Rank{0}, {}, start);
            waiting.ask(one, parent, reader, start);
        }
    };
    add(0, 10);
    const auto few = cpu_time_of(1000);
    add(10, 50000);
    EXPECT_LE(cpu_time_of(1000), 20 * few + CLOCKS_PER_SEC / 10) << "of 50,000 objects";
}

TEST_F(WaitingTest, ForgetsAskersThatAreGone) {
    want_and_ask();
    for (const Rank rank : {asker, other_asker}) {
        waiting.add_asker(key, rank, {.key = key}, start);
        waiting.add_asker(other_key, rank, {.key = other_key}, start);
    }
    waiting.forget_askers([](Rank rank) { return rank == asker; });
    EXPECT_EQ(waiting.find(key)->askers, std::vector{other_asker});
    EXPECT_EQ(waiting.find(key)->nodes(), 2U);
    EXPECT_EQ(waiting.settle(other_key), std::vector{other_asker});
}

TEST_F(WaitingTest, TheTableIsBounded) {
    for (const std::string path : {"/app/1", "/app/2", "/app/3"}) {
        EXPECT_TRUE(waiting.has_room());
        waiting.add_asker({ObjectKind::directory, path}, asker, {}, start);
    }
    EXPECT_FALSE(waiting.has_room());
    waiting.settle({ObjectKind::directory, "/app/2"});
    EXPECT_TRUE(waiting.has_room());
}

TEST_F(WaitingTest, TheEarliestIsDueFirst) {
    want_and_ask();
    waiting.add_local(other_key, FetchFor::demand, self, 0us, start - 1s);
    waiting.ask(other_key, parent, reader, start - 1s);
    EXPECT_EQ(waiting.next_deadline(), start + 2s);
    EXPECT_EQ(waiting.take_due(start + 3s)->key, other_key);
    EXPECT_EQ(waiting.take_due(start + 3s)->key, key);
    EXPECT_FALSE(waiting.take_due(start + 3s));
}

}  // namespace
}  // namespace copper
