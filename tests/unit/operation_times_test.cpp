#include "cache/backing/operation_times.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace copper {
namespace {

TEST(TimeWaited, CountsSleepAndNotWork) {
    const TimeWaited waited;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {
    }
    EXPECT_EQ(waited.elapsed().count(), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(waited.elapsed(), std::chrono::milliseconds(1));
}

TEST(OperationTimes, ABusyProcessorMakesNoFilesystemSlow) {
    using std::chrono::microseconds;
    OperationTimes times;
    EXPECT_EQ(times.note(1, microseconds(10)), microseconds(10));
    for (std::size_t i = 1; i < OperationTimes::remembered; ++i) {
        EXPECT_EQ(times.note(1, microseconds(5000)), microseconds(10));
    }
    EXPECT_EQ(times.note(1, microseconds(5000)), microseconds(5000)) << "it has become slow";
    EXPECT_EQ(times.note(2, microseconds(700)), microseconds(700)) << "another filesystem";
    for (std::uint64_t other = 3; other < 100; ++other) {
        times.note(other, microseconds(1));
    }
    EXPECT_EQ(times.note(2, microseconds(800)), microseconds(800)) << "forgotten";
}

}  // namespace
}  // namespace copper
