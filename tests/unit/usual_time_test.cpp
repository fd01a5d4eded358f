#include "collectives/usual_time.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using namespace std::chrono_literals;

TEST(UsualTime, StaysWithinItsBounds) {
    UsualTime time;
    EXPECT_EQ(time.bound(1s, 5s), 1s) << "nothing is known";
    time.note(1ms);
    EXPECT_EQ(time.bound(1s, 5s), 1s);
    for (int i = 0; i < 100; ++i) {
        time.note(60s);
    }
    EXPECT_EQ(time.bound(1s, 5s), 5s);
}

TEST(UsualTime, FollowsWhatItIsTold) {
    UsualTime time;
    for (int i = 0; i < 100; ++i) {
        time.note(i % 2 == 0 ? 100ms : 200ms);
    }
    const auto bound = time.bound(1ms, 10s);
    EXPECT_GT(bound, 300ms) << "mean 150 ms, deviation 50 ms";
    EXPECT_LT(bound, 400ms);
    for (int i = 0; i < 100; ++i) {
        time.note(10ms);
    }
    EXPECT_LT(time.bound(1ms, 10s), 11ms);
}

}  // namespace
}  // namespace copper
