#include "collectives/reading.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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

    Reading reading{{.deadline = 8s, .direct_reads_max = 2}};
};

TEST_F(ReadingTest, SaysFourTimesADeadlineThatItWorks) {
    for (const Purpose purpose : {Purpose::in_office, Purpose::unshared, Purpose::direct}) {
        reading.begin(key, purpose, 0s, start);
        for (int i = 1; i <= 30; ++i) {
            const TimePoint word = start + i * 2s;
            EXPECT_EQ(reading.next_deadline(), word);
            EXPECT_TRUE(due(word - 1us).empty());
            const auto all = due(word);
            EXPECT_EQ(std::count(all.begin(), all.end(), Next::tell_working), 1);
        }
        reading.end(key);
    }
}

TEST_F(ReadingTest, ALateWorkingIsSentOnce) {
    reading.begin(key, Purpose::unshared, 0s, start);
    EXPECT_EQ(due(start + 7s), std::vector{Next::tell_working});
    EXPECT_EQ(reading.next_deadline(), start + 9s);
}

TEST_F(ReadingTest, OnlyAReadInOfficeIsSlowAfterHalfADeadlineAndOnce) {
    for (const Purpose purpose : {Purpose::in_office, Purpose::unshared, Purpose::direct}) {
        reading.begin(key, purpose, 0s, start);
        std::vector<TimePoint> slow;
        for (TimePoint now = start; now <= start + 30s; now += 500ms) {
            const auto all = due(now);
            slow.insert(slow.end(),
                        static_cast<std::size_t>(std::count(all.begin(), all.end(), Next::is_slow)), now);
        }
        EXPECT_EQ(slow, purpose == Purpose::in_office ? std::vector{start + 4s} : std::vector<TimePoint>());
        reading.end(key);
    }
}

TEST_F(ReadingTest, AnExcuseLastsForHalfADeadline) {
    reading.begin(key, Purpose::in_office, 0s, start);
    EXPECT_EQ(due(start + 4s), (std::vector{Next::is_slow, Next::tell_working}));
    reading.excuse(key, start + 5s);
    EXPECT_EQ(reading.next_deadline(), start + 6s) << "it goes on telling";
    EXPECT_EQ(due(start + 8s), std::vector{Next::tell_working});
    EXPECT_EQ(due(start + 9s), std::vector{Next::is_slow});
}

TEST_F(ReadingTest, CountsTheTimeThatOthersSpentBefore) {
    reading.begin(key, Purpose::in_office, 4s, start);
    EXPECT_EQ(reading.spent(key, start), 4s);
    EXPECT_EQ(reading.spent(key, start + 100us), 4001ms) << "a later Working must tell more";
    EXPECT_EQ(due(start + 2s), std::vector{Next::tell_working}) << "this node is not slow";
}

TEST_F(ReadingTest, AReadEndsOnce) {
    reading.begin(key, Purpose::unshared, 0s, start);
    EXPECT_TRUE(reading.has(key));
    EXPECT_FALSE(reading.has(other_key));
    EXPECT_EQ(reading.end(other_key), std::nullopt);
    EXPECT_EQ(reading.end(key), Purpose::unshared);
    EXPECT_FALSE(reading.has(key));
    EXPECT_FALSE(reading.next_deadline());
    EXPECT_EQ(reading.end(key), std::nullopt);
}

TEST_F(ReadingTest, DirectReadsAreFewAtATime) {
    const auto begin = [this](const std::string& path, Purpose purpose) {
        reading.begin({ObjectKind::directory, path}, purpose, 0s, start);
    };
    begin("/app/1", Purpose::direct);
    begin("/app/2", Purpose::in_office);
    begin("/app/3", Purpose::unshared);
    EXPECT_TRUE(reading.has_room_for_direct()) << "others do not count";
    begin("/app/4", Purpose::direct);
    EXPECT_FALSE(reading.has_room_for_direct());
    reading.end({ObjectKind::directory, "/app/2"});
    EXPECT_FALSE(reading.has_room_for_direct());
    reading.end({ObjectKind::directory, "/app/4"});
    EXPECT_TRUE(reading.has_room_for_direct());
}

}  // namespace
}  // namespace copper
