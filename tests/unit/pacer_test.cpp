#include "daemon/pacer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr Pacer::Options options;

struct PacerTest : testing::Test {
    Pacer pacer{options};
    TimePoint time{1h};
    Pacer::Machine machine = Pacer::Machine::has_idle_cores;

    Pacer::Pause look(Pacer::Activity activity) {
        const auto pause = pacer.next(activity, machine, time);
        time += std::max<Pacer::Pause>(pause, 1us);
        return pause;
    }
    // The pause after `length` in which nothing moved.
    Pacer::Pause after(std::chrono::milliseconds length, Pacer::Activity activity = Pacer::Activity::none) {
        Pacer::Pause pause{0};
        for (const TimePoint end = time + length; time < end;) {
            pause = look(activity);
        }
        return pause;
    }
};

TEST_F(PacerTest, LooksAgainAtOnceWhenSomethingMoved) {
    after(2000ms);
    for (int i = 0; i < options.eager_polls; ++i) {
        EXPECT_EQ(look(i == 0 ? Pacer::Activity::moved : Pacer::Activity::none), 0us);
    }
    EXPECT_EQ(look(Pacer::Activity::none), options.pause_min);
}

TEST_F(PacerTest, PausesGrowWithSilence) {
    look(Pacer::Activity::moved);
    EXPECT_EQ(after(options.recent / 2), options.pause_min);
    EXPECT_EQ(after(100ms), options.pause_max);
    EXPECT_EQ(after(options.silence), options.pause_max_in_silence);
}

TEST_F(PacerTest, AnAwaitedAnswerKeepsThePausesShort) {
    look(Pacer::Activity::moved);
    EXPECT_EQ(after(5000ms, Pacer::Activity::waiting), options.pause_max_waiting);
    EXPECT_EQ(after(100ms), options.pause_max_in_silence);
    EXPECT_EQ(after(10ms, Pacer::Activity::waiting), options.pause_max_waiting);
}

// Others have the cores, and the messages come from them: to look more often would only slow them down.
TEST_F(PacerTest, PausesAreLongWhereNoCoreIsIdle) {
    machine = Pacer::Machine::crowded;
    EXPECT_EQ(look(Pacer::Activity::moved), options.pause_crowded);
    EXPECT_EQ(look(Pacer::Activity::none), options.pause_crowded);
    EXPECT_EQ(after(5000ms, Pacer::Activity::waiting), options.pause_crowded);
    EXPECT_EQ(after(5000ms), options.pause_max_in_silence);
    machine = Pacer::Machine::has_idle_cores;
    EXPECT_EQ(look(Pacer::Activity::moved), 0us);
}

TEST_F(PacerTest, WhereSendersRingOnlyWhatMovedIsLookedForAgain) {
    machine = Pacer::Machine::rings;
    EXPECT_EQ(look(Pacer::Activity::moved), 0us);
    EXPECT_EQ(look(Pacer::Activity::none), options.pause_rung);
    EXPECT_EQ(after(5000ms, Pacer::Activity::waiting), options.pause_rung);
}

}  // namespace
}  // namespace copper
