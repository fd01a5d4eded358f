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

class PaceOfAFilesystem : public testing::Test {
  protected:
    void note(Kind kind, std::chrono::nanoseconds waited, int times = 1) {
        for (int i = 0; i < times; ++i) {
            pace.note(kind, waited);
        }
    }

    Pace pace;
    TimePoint now;
};

TEST_F(PaceOfAFilesystem, OfWhichNothingIsKnownAnswersAtOnce) {
    EXPECT_EQ(pace.operation_time(), 0us);
    EXPECT_FALSE(pace.is_serial());
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

TEST_F(PaceOfAFilesystem, IsSerialIfLookupsEndOneByOne) {
    note(Kind::look_up, 1ms, 10);
    EXPECT_FALSE(pace.is_serial());
    const auto look_up = [&](std::uint64_t directory, std::uint32_t at_once, std::chrono::nanoseconds each) {
        for (std::uint32_t i = 0; i < at_once; ++i) {
            EXPECT_EQ(pace.look_up_begins(directory), i == 0);
        }
        for (std::uint32_t i = 0; i < at_once; ++i) {
            pace.look_up_ended(directory, now += each);
        }
    };
    look_up(7, 4, 1ms);
    look_up(7, 10, 1ms);
    EXPECT_FALSE(pace.is_serial()) << "too few to tell";
    look_up(7, 32, 1ms);
    EXPECT_TRUE(pace.is_serial());
    EXPECT_EQ(pace.operation_time(), 1ms) << "what others wait for is not the pace";
    look_up(7, 32, 100us);
    EXPECT_FALSE(pace.is_serial());
}

TEST_F(PaceOfAFilesystem, IsNotSerialByAStall) {
    note(Kind::look_up, 1ms, 10);
    for (int i = 0; i < 32; ++i) {
        pace.look_up_begins(7);
    }
    for (int i = 0; i < 31; ++i) {
        pace.look_up_ended(7, now += 30us);
    }
    pace.look_up_ended(7, now += 1s);
    EXPECT_FALSE(pace.is_serial());
}

TEST_F(PaceOfAFilesystem, IsNotSerialWhereAllAnswersComeAtOnce) {
    note(Kind::look_up, 50us, 10);
    for (int i = 0; i < 32; ++i) {
        pace.look_up_begins(7);
    }
    for (int i = 0; i < 32; ++i) {
        pace.look_up_ended(7, now += 50us);
    }
    EXPECT_FALSE(pace.is_serial());
}

// 512 calls in a directory whose filesystem makes one at a time, or all at once.
class ABatchOfLookups : public testing::Test {
  protected:
    std::size_t made(bool is_serial) {
        std::atomic<std::size_t> calls = 0;
        std::mutex one_at_a_time;
        const auto call = [&] {
            std::unique_lock lock(one_at_a_time, std::defer_lock);
            if (is_serial) {
                lock.lock();
            }
            std::this_thread::sleep_for(5ms);  // longer than a busy machine lets threads wait
            return ++calls;
        };
        concurrent.for_each(
            fd.get(), 512, [&](std::size_t) { pace.look_up(7, call); }, [&] { return !pace.is_serial(); });
        return calls;
    }

    test::TemporaryDirectory directory;
    UniqueFd fd{::open(directory.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    ConcurrentCalls concurrent;
    Pace pace;
};

TEST_F(ABatchOfLookups, IsMadeAtOnce) {
    EXPECT_EQ(made(false), 512U);
}

TEST_F(ABatchOfLookups, EndsWhereTheyAreSerial) {
    EXPECT_LT(made(true), 256U);
    EXPECT_TRUE(pace.is_serial());
    EXPECT_EQ(made(true), 4U) << "some, or it would look like a directory in trouble";
}

}  // namespace
}  // namespace copper
