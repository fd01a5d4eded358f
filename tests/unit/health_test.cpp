#include "daemon/health.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using namespace std::chrono_literals;

const TimePoint start{1h};

TEST(Health, IsDegradedForAMinuteAfterTheLastDirectRead) {
    Health health;
    health.look(0, 0, start);
    EXPECT_FALSE(health.is_degraded());
    health.look(1, 0, start + 1s);
    EXPECT_TRUE(health.is_degraded());
    health.look(2, 0, start + 40s);
    health.look(2, 0, start + 99s);
    EXPECT_TRUE(health.is_degraded());
    health.look(2, 0, start + 100s);
    EXPECT_FALSE(health.is_degraded());
    health.look(3, 0, start + 101s);
    EXPECT_TRUE(health.is_degraded());
}

TEST(Health, IsLookedAtNowAndThen) {
    Health health;
    EXPECT_TRUE(health.is_due(start));
    health.look(0, 0, start);
    EXPECT_FALSE(health.is_due(start + 49ms));
    EXPECT_TRUE(health.is_due(start + 50ms));
}

}  // namespace
}  // namespace copper
