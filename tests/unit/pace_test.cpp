#include "cache/backing/pace.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "cache/backing/concurrent_calls.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;
using Kind = Pace::Kind;
using Lookups = Pace::Lookups;

class PaceOfAFilesystem : public testing::Test {
  protected:
    void note(Kind kind, std::chrono::nanoseconds waited, int times = 1) {
        for (int i = 0; i < times; ++i) {
            pace.note(kind, waited);
        }
    }

    Pace pace;
};

TEST_F(PaceOfAFilesystem, OfWhichNothingIsKnownAnswersAtOnce) {
    EXPECT_EQ(pace.operation_time(), 0us);
    EXPECT_EQ(pace.lookups(), Lookups::unknown);
}

TEST_F(PaceOfAFilesystem, IsToldByTheFirstOperation) {
    note(Kind::list, 700us);
    EXPECT_EQ(pace.operation_time(), 700us);
}

// Each client answers operations of other kinds itself.
TEST_F(PaceOfAFilesystem, IsThatOfTheKindThatWaitsLongest) {
    for (const Kind slow : {Kind::list, Kind::look_up, Kind::open, Kind::read}) {
        Pace one;
        for (const Kind kind : {Kind::list, Kind::look_up, Kind::open, Kind::read}) {
            for (int i = 0; i < 20; ++i) {
                one.note(kind, kind == slow ? 1200us : 22us);
            }
        }
        EXPECT_EQ(one.operation_time(), 1200us);
    }
}

TEST_F(PaceOfAFilesystem, IsNotThatOfItsStalls) {
    note(Kind::look_up, 700us, 12);
    note(Kind::look_up, 1s, 4);
    EXPECT_EQ(pace.operation_time(), 700us);
    Pace local;
    for (int i = 0; i < 16; ++i) {
        local.note(Kind::look_up, i % 4 == 0 ? 5ms : 0ms);
    }
    EXPECT_EQ(local.operation_time(), 0us);
}

TEST_F(PaceOfAFilesystem, IsNotThatOfACacheThatKnowsHalf) {
    for (int i = 0; i < 16; ++i) {
        note(Kind::open, i % 2 == 0 ? 1200us : 0us);
    }
    EXPECT_GE(pace.operation_time(), 400us);
    EXPECT_LE(pace.operation_time(), 600us);
}

TEST_F(PaceOfAFilesystem, FollowsTheLatestOperations) {
    note(Kind::look_up, 5ms, 100);
    note(Kind::look_up, 0us, static_cast<int>(Pace::latest_max));
    EXPECT_EQ(pace.operation_time(), 0us);
    note(Kind::look_up, 2ms, static_cast<int>(Pace::latest_max));
    EXPECT_EQ(pace.operation_time(), 2ms);
}

TEST_F(PaceOfAFilesystem, IsSerialIfLookupsWaitForEachOther) {
    const std::vector<std::chrono::nanoseconds> one_by_one = {1ms, 2ms, 3ms, 4ms, 5ms, 6ms, 7ms, 8ms};
    EXPECT_FALSE(pace.note_lookups({1ms, 1ms, 1ms}, one_by_one));
    EXPECT_EQ(pace.lookups(), Lookups::unknown) << "it may have been a moment's load";
    EXPECT_FALSE(pace.note_lookups({1ms, 1ms, 1ms}, one_by_one));
    EXPECT_EQ(pace.lookups(), Lookups::serial);
    EXPECT_TRUE(pace.note_lookups({1ms, 1ms, 1ms}, {1ms, 1ms, 1ms, 1ms, 2ms, 2ms, 2ms, 2ms}));
    EXPECT_EQ(pace.lookups(), Lookups::at_once);
    EXPECT_FALSE(pace.note_lookups({1ms, 1ms, 1ms}, one_by_one));
    EXPECT_EQ(pace.lookups(), Lookups::at_once) << "no load makes calls faster";
}

TEST_F(PaceOfAFilesystem, OneStallTellsNothingOfLookups) {
    EXPECT_TRUE(pace.note_lookups({1ms, 1s, 1ms}, {1ms, 1ms, 1ms, 1ms, 1s,     2ms, 2ms, 2ms, 2ms, 1001ms,
                                                   3ms, 3ms, 3ms, 3ms, 1002ms, 4ms, 4ms, 4ms, 4ms, 1003ms}));
}

// Calls of 2 ms, in a directory whose filesystem makes one at a time, or all at once.
class LookUpEach : public testing::Test {
  protected:
    std::size_t called(bool is_serial, std::size_t count) {
        std::atomic<std::size_t> calls = 0;
        std::mutex one_at_a_time;
        const auto call = [&](std::size_t) {
            std::unique_lock lock(one_at_a_time, std::defer_lock);
            if (is_serial) {
                lock.lock();
            }
            std::this_thread::sleep_for(2ms);
            ++calls;
        };
        concurrent.look_up_each(fd.get(), count, call, pace);
        return calls;
    }

    test::TemporaryDirectory directory;
    UniqueFd fd{::open(directory.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    ConcurrentCalls concurrent;
    Pace pace;
};

TEST_F(LookUpEach, FindsOutThatTheFilesystemMakesSeveralAtOnce) {
    EXPECT_EQ(called(false, 512), 512U);
    EXPECT_EQ(pace.lookups(), Lookups::at_once);
}

TEST_F(LookUpEach, MakesFewWhereTheyAreSerial) {
    EXPECT_LE(called(true, 512), 24U);
    EXPECT_LE(called(true, 512), 24U);
    EXPECT_EQ(pace.lookups(), Lookups::serial);
    EXPECT_LE(called(true, 512), 24U);
    EXPECT_EQ(called(true, 3), 3U);
    EXPECT_EQ(called(false, 512), 512U) << "it was a mistake";
}

TEST_F(LookUpEach, CallsEachOnce) {
    for (const std::size_t count : {0U, 1U, 3U, 4U, 5U, 23U, 24U, 25U, 511U, 512U}) {
        std::vector<std::atomic<int>> calls(count);
        concurrent.look_up_each(
            fd.get(), count, [&](std::size_t i) { ++calls[i]; }, pace);
        for (const auto& one : calls) {
            EXPECT_EQ(one, 1) << count;
        }
    }
}

}  // namespace
}  // namespace copper
