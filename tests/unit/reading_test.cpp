#include "collectives/reading.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace copper {
namespace {

using namespace std::chrono_literals;
using Next = Reading::Due::Next;
using Purpose = Reading::Purpose;

constexpr TimePoint start{1h};
const ObjectKey key{ObjectKind::directory, "/app/lib"};
const ObjectKey other_key{ObjectKind::directory, "/app/other"};

class ReadingTest : public testing::Test {
  protected:
    // All that is to be done now for the only object.
    std::vector<Next> due(TimePoint now) {
        std::vector<Next> all;
        while (const auto due = reading.take_due(now)) {
            EXPECT_EQ(due->key, key);
            all.push_back(due->next);
        }
        return all;
    }

    void add(const ObjectKey& what, Purpose purpose, std::chrono::milliseconds spent = 0ms,
             TimePoint now = start, FetchFor why = FetchFor::demand) {
        reading.add(what, what.path.starts_with("/hung") ? "/hung" : "/", purpose, why, spent, now);
    }
    // Of the reads that began now.
    std::vector<ObjectKey> begin_reads(TimePoint now) {
        std::vector<ObjectKey> begun;
        reading.begin_reads(0, now, [&](const ObjectKey& one) { begun.push_back(one); });
        return begun;
    }
    void begin(const ObjectKey& what, Purpose purpose, std::chrono::milliseconds spent) {
        add(what, purpose, spent);
        EXPECT_EQ(begin_reads(start), std::vector{what});
    }
    // All threads are busy from the start on.
    void fill(Purpose purpose) {
        for (int i = 0; i < 4; ++i) {
            begin({ObjectKind::directory, "/app/busy" + std::to_string(i)}, purpose, 0s);
        }
    }
    static ObjectKey busy(int i) { return {ObjectKind::directory, "/app/busy" + std::to_string(i)}; }

    std::map<ObjectKey, TimePoint> latest_calls;
    Reading reading{{.deadline = 8s,
                     .direct_reads_max = 2,
                     .reads_max = 6,
                     .queue = {.reads_max = 4, .this_node_max = 4, .ahead_max = 3}},
                    [this](const ObjectKey& one) { return latest_calls[one]; }};
};

TEST_F(ReadingTest, SaysFourTimesADeadlineThatItWorks) {
    for (const Purpose purpose : {Purpose::in_office, Purpose::unshared, Purpose::direct}) {
        begin(key, purpose, 0s);
        for (int i = 1; i <= 30; ++i) {
            const TimePoint word = start + i * 2s;
            EXPECT_EQ(reading.next_deadline(), word);
            EXPECT_TRUE(due(word - 1us).empty());
            const auto all = due(word);
            EXPECT_EQ(std::count(all.begin(), all.end(), Next::tell_working), 1);
        }
        reading.end(key, start);
    }
}

TEST_F(ReadingTest, ALateWorkingIsSentOnce) {
    begin(key, Purpose::unshared, 0s);
    EXPECT_EQ(due(start + 7s), std::vector{Next::tell_working});
    EXPECT_EQ(reading.next_deadline(), start + 9s);
}

TEST_F(ReadingTest, OnlyAReadInOfficeIsSlowAfterHalfADeadlineAndOnce) {
    for (const Purpose purpose : {Purpose::in_office, Purpose::unshared, Purpose::direct}) {
        begin(key, purpose, 0s);
        std::vector<TimePoint> slow;
        for (TimePoint now = start; now <= start + 30s; now += 500ms) {
            const auto all = due(now);
            slow.insert(slow.end(),
                        static_cast<std::size_t>(std::count(all.begin(), all.end(), Next::is_slow)), now);
        }
        EXPECT_EQ(slow, purpose == Purpose::in_office ? std::vector{start + 4s} : std::vector<TimePoint>());
        reading.end(key, start);
    }
}

TEST_F(ReadingTest, TheClockStartsWhenTheReadBegins) {
    fill(Purpose::unshared);
    add(key, Purpose::in_office);
    for (int i = 0; i < 4; ++i) {
        reading.end(busy(i), start + 3s);
    }
    EXPECT_EQ(reading.working(key, start + 3s).place_in_queue, 1U);
    EXPECT_EQ(begin_reads(start + 3s), std::vector{key});
    EXPECT_EQ(reading.working(key, start + 3s).place_in_queue, 0U);
    EXPECT_EQ(reading.working(key, start + 5s).still, 2s) << "since it began";
    EXPECT_EQ(reading.working(key, start + 5s).spent, 5s) << "since it was asked for";
    EXPECT_EQ(due(start + 7s - 1us), std::vector{Next::tell_working});
    EXPECT_EQ(due(start + 7s), std::vector{Next::is_slow});
}

TEST_F(ReadingTest, AQueueIsNotSlow) {
    fill(Purpose::in_office);
    add(key, Purpose::in_office);
    add(other_key, Purpose::in_office);
    for (int i = 0; i < 4; ++i) {
        const TimePoint now = start + (i + 1) * 3s;
        while (const auto due = reading.take_due(now)) {
            EXPECT_TRUE(!reading.queued_for(due->key) || due->next == Next::tell_working);
        }
        reading.end(busy(i), now);
        add(busy(i), Purpose::unshared, 0s, now);
        EXPECT_EQ(begin_reads(now).size(), 1U);
        EXPECT_EQ(reading.working(other_key, now + 1s).still, 1s);
    }
}

TEST_F(ReadingTest, EachFilesystemHasItsOwnQueue) {
    const auto hung = [](int i) { return ObjectKey{ObjectKind::directory, "/hung/" + std::to_string(i)}; };
    for (int i = 0; i < 6; ++i) {
        add(hung(i), Purpose::direct);
    }
    EXPECT_EQ(begin_reads(start).size(), 4U);
    EXPECT_FALSE(reading.has_room_for_direct("/hung"));
    EXPECT_TRUE(reading.has_room_for_direct("/"));
    add(key, Purpose::in_office);
    EXPECT_EQ(reading.working(key, start).place_in_queue, 1U);
    EXPECT_EQ(begin_reads(start), std::vector{key});
    add(other_key, Purpose::in_office);
    add(busy(0), Purpose::in_office);
    EXPECT_EQ(begin_reads(start), std::vector{other_key}) << "there are six threads";
    EXPECT_EQ(reading.queued(), 3U);
    reading.end(key, start + 3s);
    EXPECT_EQ(reading.working(hung(5), start + 5s).still, 5s) << "another one's progress is not its own";
}

TEST_F(ReadingTest, AReadOfManyCallsIsSlowWhenOneOfThemIs) {
    begin(key, Purpose::in_office, 0s);
    for (int i = 1; i <= 20; ++i) {
        latest_calls[key] = start + i * 1s;
        const auto all = due(start + i * 1s);
        EXPECT_EQ(std::count(all.begin(), all.end(), Next::is_slow), 0);
    }
    EXPECT_EQ(reading.working(key, start + 22s).still, 2s);
    EXPECT_EQ(due(start + 24s - 1us), std::vector{Next::tell_working});
    EXPECT_EQ(due(start + 24s), std::vector{Next::is_slow});
}

// Of many slow reads one asks for another reader's help. If that one is faster, all do.
TEST_F(ReadingTest, SlowReadsAskOneByOneForHelp) {
    const auto slow = [this](TimePoint now) {
        std::size_t found = 0;
        while (const auto due = reading.take_due(now)) {
            found += due->next == Next::is_slow ? 1U : 0U;
        }
        return found;
    };
    fill(Purpose::in_office);
    EXPECT_EQ(slow(start + 4s), 1U);
    EXPECT_EQ(slow(start + 8s - 1us), 0U);
    EXPECT_FALSE(reading.is_slow_elsewhere(busy(0), start + 8s - 1us));
    EXPECT_EQ(slow(start + 8s), 1U);
    EXPECT_TRUE(reading.is_slow_elsewhere(busy(0), start + 8s));
    EXPECT_FALSE(reading.is_slow_elsewhere(busy(1), start + 8s)) << "it has just been passed on";
    reading.resign(start + 9s);
    EXPECT_EQ(slow(start + 9s), 2U);
}

// Many readers share a slow filesystem: what takes all of them long is not this node's fault.
TEST_F(ReadingTest, AReadThatTakesAsLongAsOthersIsNotSlow) {
    begin(other_key, Purpose::in_office, 0s);
    add(key, Purpose::in_office, 0s, start + 1s);
    begin_reads(start + 1s);
    reading.end(other_key, start + 3s);
    EXPECT_EQ(due(start + 5s), std::vector{Next::tell_working}) << "the other took 3 s";
    EXPECT_TRUE(due(start + 7s - 1us).empty());
    EXPECT_EQ(due(start + 7s), (std::vector{Next::is_slow, Next::tell_working}));
}

TEST_F(ReadingTest, WhatNobodyAwaitsLeavesTheQueue) {
    fill(Purpose::unshared);
    EXPECT_EQ(reading.drop(busy(0)), std::nullopt) << "it has begun";
    add(key, Purpose::direct);
    EXPECT_EQ(reading.queued_for(key), Purpose::direct);
    EXPECT_EQ(reading.end(key, start), std::nullopt) << "it has not begun";
    EXPECT_EQ(reading.drop(key), Purpose::direct);
    EXPECT_FALSE(reading.has(key));
    reading.end(busy(0), start);
    EXPECT_TRUE(begin_reads(start).empty());
}

TEST_F(ReadingTest, DemandMakesAGuessDemand) {
    fill(Purpose::unshared);
    add(key, Purpose::in_office, 0s, start, FetchFor::guess);
    add(other_key, Purpose::in_office, 0s, start, FetchFor::everyone);
    reading.promote(other_key);
    reading.end(busy(0), start);
    EXPECT_EQ(begin_reads(start), std::vector{other_key});
    reading.promote(other_key);
    reading.end(busy(1), start);
    EXPECT_EQ(begin_reads(start), std::vector{key});
    for (const ObjectKey& one : {busy(2), busy(3), key, other_key}) {
        reading.end(one, start);
    }
    EXPECT_EQ(reading.in_flight(), 0U);
}

TEST_F(ReadingTest, CountsTheTimeThatOthersSpentBefore) {
    begin(key, Purpose::in_office, 4s);
    EXPECT_EQ(reading.spent(key, start), 4s);
    EXPECT_EQ(reading.spent(key, start + 100us), 4001ms) << "a later Working must tell more";
    EXPECT_EQ(due(start + 2s), std::vector{Next::tell_working}) << "this node is not slow";
}

TEST_F(ReadingTest, AReadEndsOnce) {
    begin(key, Purpose::unshared, 0s);
    EXPECT_TRUE(reading.has(key));
    EXPECT_FALSE(reading.has(other_key));
    EXPECT_EQ(reading.end(other_key, start), std::nullopt);
    EXPECT_EQ(reading.end(key, start), Purpose::unshared);
    EXPECT_FALSE(reading.has(key));
    EXPECT_FALSE(reading.next_deadline());
    EXPECT_EQ(reading.end(key, start), std::nullopt);
}

TEST_F(ReadingTest, DirectReadsAreFewAtATime) {
    const auto add_read = [this](const std::string& path, Purpose purpose) {
        begin({ObjectKind::directory, path}, purpose, 0s);
    };
    add_read("/app/1", Purpose::direct);
    add_read("/app/2", Purpose::in_office);
    add_read("/app/3", Purpose::unshared);
    EXPECT_TRUE(reading.has_room_for_direct("/")) << "others do not count";
    add_read("/app/4", Purpose::direct);
    EXPECT_FALSE(reading.has_room_for_direct("/"));
    reading.end({ObjectKind::directory, "/app/2"}, start);
    EXPECT_FALSE(reading.has_room_for_direct("/"));
    reading.end({ObjectKind::directory, "/app/4"}, start);
    EXPECT_TRUE(reading.has_room_for_direct("/"));
}

}  // namespace
}  // namespace copper
