#include "cache/backing/time_waited.hpp"

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

}  // namespace
}  // namespace copper
