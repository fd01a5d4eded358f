#include "collectives/read_queue.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace copper {
namespace {

using ReadFor = ReadQueue::ReadFor;

class ReadQueueTest : public testing::Test {
  protected:
    void add(ReadFor whom, int count) {
        for (int i = 0; i < count; ++i) {
            queue.add({.kind = ObjectKind::entry, .path = "/" + std::to_string(i)}, whom);
        }
    }
    // Whom the reads that began are for, in order.
    std::vector<ReadFor> begin(std::uint64_t backlog_bytes = 0, std::size_t threads = SIZE_MAX) {
        std::vector<ReadFor> begun;
        queue.begin_reads(backlog_bytes, [&](const ObjectKey& key, ReadFor whom) {
            if (begun.size() == threads) {
                return false;
            }
            EXPECT_EQ(key.path, "/" + std::to_string(next[whom]++));
            begun.push_back(whom);
            return true;
        });
        return begun;
    }

    ReadQueue queue{{.ahead_max = 3, .bytes_for_others_max = 5 * extent_bytes}};
    std::map<ReadFor, int> next;
};

TEST_F(ReadQueueTest, DemandComesBeforeSpeculation) {
    add(ReadFor::the_job_ahead, 4);
    add(ReadFor::the_job, 2);
    add(ReadFor::this_node, 2);
    EXPECT_EQ(begin(),
              (std::vector{ReadFor::this_node, ReadFor::this_node, ReadFor::the_job, ReadFor::the_job,
                           ReadFor::the_job_ahead, ReadFor::the_job_ahead, ReadFor::the_job_ahead}));
    EXPECT_FALSE(queue.is_empty());
    EXPECT_EQ(queue.in_flight(), 7U);
}

TEST_F(ReadQueueTest, SpeculationLeavesRoomForDemand) {
    add(ReadFor::the_job_ahead, 10);
    EXPECT_EQ(begin().size(), 3U);
    add(ReadFor::the_job, 1);
    EXPECT_EQ(begin(), std::vector{ReadFor::the_job}) << "it does not wait for what is fetched ahead";
    queue.ended(ReadFor::the_job_ahead);
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

TEST_F(ReadQueueTest, WhatCannotBeginStaysInItsPlace) {
    add(ReadFor::this_node, 3);
    EXPECT_EQ(begin(0, 1).size(), 1U);
    EXPECT_EQ(queue.in_flight(), 1U);
    EXPECT_EQ(begin().size(), 2U);
    EXPECT_TRUE(queue.is_empty());
}

}  // namespace
}  // namespace copper
