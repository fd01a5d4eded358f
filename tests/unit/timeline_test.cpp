#include "daemon/control/timeline.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using namespace std::chrono_literals;

const Timeline::Time begin(1000000s);

std::uint64_t sum_of(const Timeline& timeline) {
    std::uint64_t sum = 0;
    for (const auto& [number, counts] : timeline.steps()) {
        sum += counts[1];
    }
    return sum;
}

TEST(TimelineTest, KeepsOnlyStepsInWhichSomethingHappened) {
    Timeline timeline;
    timeline.add(begin, {1, 5});
    timeline.add(begin + 100ms, {0, 7});
    timeline.add(begin + 1h, {});
    timeline.add(begin + 2h, {0, 1});
    ASSERT_EQ(timeline.steps().size(), 2U);
    EXPECT_EQ(timeline.step(), Timeline::shortest_step);
    EXPECT_EQ(timeline.steps().begin()->second, (Timeline::Counts{1, 12}));
    EXPECT_EQ(Timeline::Time(timeline.step() * timeline.steps().begin()->first), begin);
}

TEST(TimelineTest, IsBoundedAndLosesNothing) {
    Timeline timeline;
    for (int i = 0; i < 100000; ++i) {
        timeline.add(begin + i * 250ms, {0, 1});
        ASSERT_LE(timeline.steps().size(), Timeline::steps_max);
    }
    EXPECT_EQ(sum_of(timeline), 100000U);
    EXPECT_EQ(timeline.step(), 256s);
}

TEST(TimelineTest, AddsUpWithOthersOfAnyStep) {
    Timeline longer;
    for (int i = 0; i < 1000; ++i) {
        longer.add(begin + i * 250ms, {0, 1});
    }
    Timeline shorter;
    shorter.add(begin + 3s, {1, 10});
    Timeline sum = shorter;
    sum.add(longer);
    Timeline other = longer;
    other.add(shorter);
    EXPECT_EQ(sum.steps(), other.steps());
    EXPECT_EQ(sum.step(), longer.step());
    EXPECT_EQ(sum_of(sum), 1010U);
}

TEST(TimelineTest, AsJsonAndBack) {
    Timeline timeline;
    EXPECT_TRUE(timeline_from(to_json(timeline)).steps().empty());
    for (int i = 0; i < 500; ++i) {
        timeline.add(begin + i * 700ms, {1, 2, 3, 4, 5, 6});
    }
    const auto back = timeline_from(nlohmann::json::parse(to_json(timeline).dump()));
    EXPECT_EQ(back.steps(), timeline.steps());
    EXPECT_EQ(back.step(), timeline.step());
}

TEST(TimelineTest, RefusesWhatIsNone) {
    for (const char* text :
         {"{}", "3", R"({"begin_ms": 0, "step_ms": 0, "steps": []})",
          R"({"begin_ms": -1, "step_ms": 250, "steps": []})",
          R"({"begin_ms": 9000000000000000, "step_ms": 250, "steps": []})",
          R"({"begin_ms": 0, "step_ms": 4194304000, "steps": [[4294967295, 1, 1, 1, 1, 1, 1]]})",
          R"({"begin_ms": 0, "step_ms": 250, "steps": [[1, 2]]})"}) {
        EXPECT_THROW(timeline_from(nlohmann::json::parse(text)), std::exception) << text;
    }
}

}  // namespace
}  // namespace copper
