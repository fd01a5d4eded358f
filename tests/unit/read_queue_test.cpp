#include "collectives/read_queue.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace copper {
namespace {

using ReadFor = ReadQueue::ReadFor;

ObjectKey key_of(ReadFor whom, int number, ObjectKind kind = ObjectKind::extent) {
    return {.kind = kind,
            .path = "/" + std::to_string(static_cast<int>(whom)) + "/" + std::to_string(number)};
}

ObjectKey entry_of(ReadFor whom, int number) {
    return key_of(whom, number, ObjectKind::entry);
}

class ReadQueueTest : public testing::Test {
  protected:
    void add(ReadFor whom, int count) {
        for (int i = 0; i < count; ++i) {
            queue.add(key_of(whom, added[whom]++), whom);
        }
    }
    // Whom the reads that began are for, in order.
    std::vector<ReadFor> begin(std::uint64_t backlog_bytes = 0) {
        std::vector<ReadFor> begun;
        queue.begin_reads(backlog_bytes, UINT64_MAX, [&](const ObjectKey& key, ReadFor whom) {
            EXPECT_EQ(key, key_of(whom, next[whom]++));
            EXPECT_FALSE(queue.has(key));
            begun.push_back(whom);
        });
        return begun;
    }

    ReadQueue queue{
        {.reads_max = 8, .this_node_max = 6, .ahead_max = 3, .bytes_for_others_max = 5 * extent_bytes}};
    std::map<ReadFor, int> added;
    std::map<ReadFor, int> next;
};

TEST_F(ReadQueueTest, DemandTakesTurnsAndComesBeforeSpeculation) {
    add(ReadFor::the_job_ahead, 4);
    add(ReadFor::the_job, 2);
    add(ReadFor::this_node, 3);
    EXPECT_EQ(begin(), (std::vector{ReadFor::this_node, ReadFor::the_job, ReadFor::this_node,
                                    ReadFor::the_job, ReadFor::this_node, ReadFor::the_job_ahead,
                                    ReadFor::the_job_ahead, ReadFor::the_job_ahead}));
    EXPECT_EQ(queue.size(), 1U);
    EXPECT_EQ(queue.in_flight(), 8U);
}

TEST_F(ReadQueueTest, FewLookupsAheadWhereTheyAreSerial) {
    ReadQueue serial({.serial_ahead_max = 2});
    serial.set_serial(true);
    std::map<ObjectKind, int> begun;
    for (int i = 0; i < 10; ++i) {
        serial.add(entry_of(ReadFor::the_job_ahead, i), ReadFor::the_job_ahead);
        serial.add(key_of(ReadFor::the_job_ahead, i), ReadFor::the_job_ahead);
    }
    const auto begin_reads = [&] {
        serial.begin_reads(0, UINT64_MAX, [&](const ObjectKey& key, ReadFor) { ++begun[key.kind]; });
        return begun;
    };
    EXPECT_EQ(begin_reads(), (std::map<ObjectKind, int>{{ObjectKind::entry, 2}, {ObjectKind::extent, 10}}));
    serial.set_serial(false);
    EXPECT_EQ(begin_reads()[ObjectKind::entry], 10);
}

TEST_F(ReadQueueTest, SpeculationLeavesRoomForDemand) {
    add(ReadFor::the_job_ahead, 10);
    EXPECT_EQ(begin().size(), 3U);
    add(ReadFor::the_job, 1);
    EXPECT_EQ(begin(), std::vector{ReadFor::the_job}) << "it does not wait for what is fetched ahead";
    queue.ended(key_of(ReadFor::the_job_ahead, 0), ReadFor::the_job_ahead);
    EXPECT_EQ(begin(), std::vector{ReadFor::the_job_ahead});
}

TEST_F(ReadQueueTest, WhatIsForOthersWaitsForTheLink) {
    add(ReadFor::the_job, 10);
    add(ReadFor::this_node, 1);
    EXPECT_EQ(begin(5 * extent_bytes), std::vector{ReadFor::this_node});
    EXPECT_EQ(begin(3 * extent_bytes).size(), 2U);
    EXPECT_EQ(begin(3 * extent_bytes).size(), 0U);
    EXPECT_EQ(begin(2 * extent_bytes).size(), 1U);
}

// The keys of reads that began, in order.
std::vector<ObjectKey> begun_of(ReadQueue& queue, std::uint64_t backlog_bytes) {
    std::vector<ObjectKey> begun;
    queue.begin_reads(backlog_bytes, UINT64_MAX,
                      [&](const ObjectKey& key, ReadFor) { begun.push_back(key); });
    return begun;
}

TEST_F(ReadQueueTest, MetadataDoesNotWaitBehindDataThatWaitsForTheLink) {
    for (const ReadFor whom : {ReadFor::the_job, ReadFor::the_job_ahead}) {
        add(whom, 3);
        queue.add(entry_of(whom, 7), whom);
        EXPECT_EQ(begun_of(queue, 5 * extent_bytes), std::vector{entry_of(whom, 7)});
        queue.ended(entry_of(whom, 7), whom);
        queue.add(entry_of(whom, 8), whom);
        EXPECT_TRUE(begun_of(queue, 20 * extent_bytes).empty()) << "that is too much, too";
        for (int i = 0; i < 3; ++i) {
            queue.drop(key_of(whom, i));
        }
        queue.drop(entry_of(whom, 8));
    }
}

TEST_F(ReadQueueTest, MetadataAndDataTakeTurns) {
    add(ReadFor::the_job, 4);
    for (int i = 0; i < 4; ++i) {
        queue.add(entry_of(ReadFor::the_job, i), ReadFor::the_job);
    }
    EXPECT_EQ(queue.before(key_of(ReadFor::the_job, 1)), 1U + 2U);
    EXPECT_EQ(queue.before(entry_of(ReadFor::the_job, 1)), 1U + 2U);
    std::vector<ObjectKey> expected;
    for (int i = 0; i < 4; ++i) {
        expected.push_back(entry_of(ReadFor::the_job, i));
        expected.push_back(key_of(ReadFor::the_job, i));
    }
    EXPECT_EQ(begun_of(queue, 0), expected);
}

TEST_F(ReadQueueTest, MetadataCountsForWhatItTakes) {
    for (int i = 0; i < 6; ++i) {
        queue.add(entry_of(ReadFor::the_job, i), ReadFor::the_job);
    }
    EXPECT_EQ(begun_of(queue, 0).size(), 6U);
    add(ReadFor::the_job, 3);
    EXPECT_EQ(begun_of(queue, 3 * extent_bytes).size(), 2U) << "as if no metadata were being read";
}

TEST_F(ReadQueueTest, AReadBeginsWhenAnotherOneHasEnded) {
    add(ReadFor::this_node, 6);
    add(ReadFor::the_job, 3);
    EXPECT_EQ(begin().size(), 8U);
    EXPECT_TRUE(begin().empty());
    queue.ended(key_of(ReadFor::the_job, 0), ReadFor::the_job);
    EXPECT_EQ(begin(), std::vector{ReadFor::this_node});
    queue.ended(key_of(ReadFor::this_node, 0), ReadFor::this_node);
    EXPECT_TRUE(begin().empty());
}

TEST_F(ReadQueueTest, ReadsForThisNodeLeaveRoomForTheJob) {
    add(ReadFor::this_node, 9);
    EXPECT_EQ(begin().size(), 6U);
    add(ReadFor::the_job, 3);
    EXPECT_EQ(begin(), (std::vector{ReadFor::the_job, ReadFor::the_job}));
}

TEST_F(ReadQueueTest, NoMoreBeginThanThereAreThreads) {
    add(ReadFor::the_job, 3);
    std::size_t begun = 0;
    queue.begin_reads(0, 2, [&](const ObjectKey&, ReadFor) { ++begun; });
    EXPECT_EQ(begun, 2U);
    EXPECT_EQ(queue.size(), 1U);
}

TEST_F(ReadQueueTest, WhatNobodyAwaitsDoesNotBegin) {
    add(ReadFor::the_job, 3);
    const ObjectKey dropped = key_of(ReadFor::the_job, 1);
    queue.drop(dropped);
    EXPECT_FALSE(queue.has(dropped));
    EXPECT_EQ(queue.size(), 2U);
    std::vector<ObjectKey> begun;
    queue.begin_reads(0, UINT64_MAX, [&](const ObjectKey& key, ReadFor) { begun.push_back(key); });
    EXPECT_EQ(begun, (std::vector{key_of(ReadFor::the_job, 0), key_of(ReadFor::the_job, 2)}));
}

TEST_F(ReadQueueTest, WhatBecomesDemandComesAfterOlderDemandAndBeforeGuesses) {
    add(ReadFor::the_job_ahead, 2);
    add(ReadFor::the_job, 1);
    const ObjectKey promoted = key_of(ReadFor::the_job_ahead, 1);
    queue.promote(promoted);
    queue.promote(promoted);
    std::vector<ObjectKey> begun;
    queue.begin_reads(0, UINT64_MAX, [&](const ObjectKey& key, ReadFor whom) {
        EXPECT_EQ(whom == ReadFor::the_job_ahead, key == key_of(ReadFor::the_job_ahead, 0));
        begun.push_back(key);
    });
    EXPECT_EQ(begun, (std::vector{key_of(ReadFor::the_job, 0), promoted, key_of(ReadFor::the_job_ahead, 0)}));
}

TEST_F(ReadQueueTest, SaysHowManyBeginBefore) {
    add(ReadFor::the_job, 8);
    begin();
    add(ReadFor::the_job, 5);
    add(ReadFor::this_node, 2);
    add(ReadFor::the_job_ahead, 2);
    EXPECT_EQ(queue.before(key_of(ReadFor::the_job, 13 - 1)), 7U + 2U) << "three are still queued before";
    EXPECT_EQ(queue.before(key_of(ReadFor::this_node, 1)), 1U + 2U);
    EXPECT_EQ(queue.before(key_of(ReadFor::the_job_ahead, 1)), 1U + 8U + 2U);
}

}  // namespace
}  // namespace copper
