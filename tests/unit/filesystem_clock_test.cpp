#include "cache/backing/filesystem_clock.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr std::uint64_t filesystem = 7;
constexpr seconds start{1'700'000'000};

// A node and a filesystem whose clocks differ by `ahead`; the filesystem's ticks every `tick`.
class World {
  public:
    explicit World(nanoseconds ahead = {}, nanoseconds tick = seconds(1), bool is_local = false)
        : ahead_(ahead), tick_(tick), is_local_(is_local) {}

    void pass(nanoseconds time) { passed_ += time; }

    // Of a change that happened `ago`.
    Timestamp stamp(nanoseconds ago = {}) const {
        const nanoseconds then = start + passed_ + ahead_ - ago;
        const nanoseconds shown = then / tick_ * tick_;
        return {.seconds = shown / seconds(1),
                .nanoseconds = static_cast<std::uint32_t>((shown % seconds(1)).count())};
    }

    FilesystemClocks::Verdict judge(const Timestamp& changed) {
        return clocks.judge(filesystem, changed, [this] {
            ++asked;
            return is_local_;
        });
    }

    FilesystemClocks clocks{[this] {
        return FilesystemClocks::Now{.wall = start + passed_, .monotonic = passed_ + seconds(1000)};
    }};
    int asked = 0;

  private:
    nanoseconds passed_{milliseconds(345)};
    const nanoseconds ahead_;
    const nanoseconds tick_;
    const bool is_local_;
};

TEST(FilesystemClocks, WhatChangedLongAgoIsSettled) {
    World world;
    EXPECT_EQ(world.judge(world.stamp(minutes(6))).rest, Rest::settled);
    EXPECT_EQ(world.asked, 0) << "nor is the filesystem asked anything";
}

// Whatever the server's clock shows, nothing that changed within a tick is settled; a tick later it is.
TEST(FilesystemClocks, TwoLooksATickApartProveThatAFileIsSettled) {
    for (const bool is_local : {false, true}) {
        for (const auto ahead : {minutes(-4), minutes(0), minutes(4)}) {
            if (is_local && ahead.count() != 0) {
                continue;
            }
            for (const nanoseconds tick : {nanoseconds(seconds(1)), nanoseconds(4'000'001)}) {
                SCOPED_TRACE(std::to_string(ahead.count()) + " " + std::to_string(tick.count()));
                World world(ahead, tick, is_local);
                const Timestamp changed = world.stamp();
                const auto first = world.judge(changed);
                EXPECT_NE(first.rest, Rest::settled);
                EXPECT_LE(first.wait, tick + milliseconds(25));
                EXPECT_EQ(world.judge(changed).rest, first.rest)
                    << "it is not the number of looks that counts";
                world.pass(first.rest == Rest::recent ? first.wait : tick + milliseconds(25));
                ASSERT_NE(world.stamp(), changed) << "another change would show";
                EXPECT_EQ(world.judge(changed).rest, Rest::settled);
            }
        }
    }
}

TEST(FilesystemClocks, AServerBehindLeavesWhatLooksOldUnproven) {
    World world(minutes(-4));
    EXPECT_EQ(world.judge(world.stamp()).rest, Rest::unproven);
    EXPECT_EQ(world.judge(world.stamp()).wait, milliseconds(0)) << "nobody waits for it";
}

TEST(FilesystemClocks, AServerAheadDoesNotMakeOneWaitForItsFuture) {
    World world(minutes(4));
    const auto verdict = world.judge(world.stamp());
    EXPECT_EQ(verdict.rest, Rest::recent);
    EXPECT_LE(verdict.wait, milliseconds(1100));
}

TEST(FilesystemClocks, ANewerStampProvesOlderOnes) {
    World world(minutes(-4));
    world.clocks.note(filesystem, world.stamp());
    EXPECT_EQ(world.judge(world.stamp(seconds(3))).rest, Rest::settled);
    EXPECT_EQ(world.judge(world.stamp(milliseconds(1))).rest, Rest::unproven);
    world.clocks.note(filesystem, {.seconds = start.count() + 3600, .nanoseconds = 0});
    EXPECT_EQ(world.judge(world.stamp(milliseconds(1))).rest, Rest::unproven)
        << "a stamp of another time is of no clock that runs now";
    EXPECT_EQ(world.clocks.judge(filesystem + 1, world.stamp(seconds(3)), [] { return false; }).rest,
              Rest::unproven)
        << "nor is another filesystem's";
}

// The ticks of this node's clock, however much more slowly than the server's they come.
TEST(FilesystemClocks, TheClockOfALocalFilesystemIsThisNodes) {
    World world({}, seconds(1), true);
    EXPECT_EQ(world.judge(world.stamp(seconds(3))).rest, Rest::settled);
    const auto recent = world.judge(world.stamp());
    EXPECT_EQ(recent.rest, Rest::recent);
    EXPECT_LT(recent.wait, milliseconds(1020 - 345 + 10)) << "345 ms of its second have passed";
    EXPECT_EQ(world.asked, 1);
}

TEST(FilesystemClocks, FineStampsSettleSoon) {
    World world({}, nanoseconds(4'000'001), true);
    EXPECT_EQ(world.judge(world.stamp(milliseconds(21))).rest, Rest::settled);
    const auto recent = world.judge(world.stamp(milliseconds(5)));
    EXPECT_EQ(recent.rest, Rest::recent);
    EXPECT_LE(recent.wait, milliseconds(25));
}

TEST(FilesystemClocks, KnowsManyFilesystemsAndForgetsSome) {
    World world;
    for (std::uint64_t i = 0; i < 10'000; ++i) {
        world.clocks.note(i, world.stamp());
    }
    EXPECT_EQ(world.judge(world.stamp()).rest, Rest::recent);
}

}  // namespace
}  // namespace copper
