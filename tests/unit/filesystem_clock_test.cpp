#include "cache/backing/filesystem_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace copper {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr std::uint64_t filesystem = 7;
constexpr seconds start{1'700'000'000};
constexpr milliseconds settled{0};

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

    milliseconds time_to_settle(const Timestamp& changed) {
        return clocks.time_to_settle(filesystem, changed, [this] {
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
    EXPECT_EQ(world.time_to_settle(world.stamp(minutes(6))), settled);
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
                const auto first = world.time_to_settle(changed);
                EXPECT_GT(first, settled);
                EXPECT_LE(first, tick + milliseconds(is_local ? 205 : 25));
                EXPECT_EQ(world.time_to_settle(changed), first)
                    << "it is not the number of looks that counts";
                world.pass(first);
                ASSERT_NE(world.stamp(), changed) << "another change would show";
                EXPECT_EQ(world.time_to_settle(changed), settled);
            }
        }
    }
}

// Whoever reads files that were written in the last minutes one after the other waits for few of them.
TEST(FilesystemClocks, OfManyFilesOnlyTheNewestAreWaitedFor) {
    for (const auto ahead : {minutes(-4), minutes(0), minutes(4)}) {
        SCOPED_TRACE(ahead.count());
        World world(ahead);
        std::vector<Timestamp> stamps;
        for (int i = 0; i < 60; ++i) {
            stamps.push_back(world.stamp(seconds(i)));
        }
        std::shuffle(stamps.begin(), stamps.end(), std::minstd_rand(5));
        int waits = 0;
        for (const Timestamp& changed : stamps) {
            const milliseconds wait = world.time_to_settle(changed);
            EXPECT_LE(wait, milliseconds(1100)) << "nor for a server's future";
            waits += wait > settled ? 1 : 0;
            world.pass(wait);
        }
        EXPECT_LE(waits, 8);
    }
}

TEST(FilesystemClocks, ANewerStampProvesOlderOnes) {
    World world(minutes(-4));
    world.clocks.note(filesystem, world.stamp());
    EXPECT_EQ(world.time_to_settle(world.stamp(seconds(3))), settled);
    EXPECT_GT(world.time_to_settle(world.stamp(milliseconds(1))), settled);
    world.clocks.note(filesystem, {.seconds = start.count() + 3600, .nanoseconds = 0});
    EXPECT_GT(world.time_to_settle(world.stamp(milliseconds(1))), settled)
        << "a stamp of another time is of no clock that runs now";
    EXPECT_GT(world.clocks.time_to_settle(filesystem + 1, world.stamp(seconds(3)), [] { return false; }),
              settled)
        << "nor is another filesystem's";
}

// The ticks of this node's clock, however much more slowly than the server's they come.
TEST(FilesystemClocks, TheClockOfALocalFilesystemIsThisNodes) {
    World world({}, seconds(1), true);
    EXPECT_EQ(world.time_to_settle(world.stamp(seconds(3))), settled);
    const auto recent = world.time_to_settle(world.stamp());
    EXPECT_GT(recent, settled);
    EXPECT_LT(recent, milliseconds(1200 - 345 + 10)) << "345 ms of its second have passed";
    EXPECT_EQ(world.asked, 1);
}

TEST(FilesystemClocks, AClientElsewhereMayKeepTheStampOfAMomentAgo) {
    for (const bool is_local : {false, true}) {
        World world({}, seconds(1), is_local);
        for (const nanoseconds age : {nanoseconds(0), nanoseconds(minutes(4)), nanoseconds(minutes(6))}) {
            world.time_to_settle(world.stamp(age));
            EXPECT_EQ(world.clocks.may_be_stale(filesystem, world.stamp(age)), !is_local && age < minutes(5));
        }
    }
}

TEST(FilesystemClocks, FineStampsSettleSoon) {
    World world({}, nanoseconds(4'000'001), true);
    EXPECT_EQ(world.time_to_settle(world.stamp(milliseconds(201))), settled);
    const auto recent = world.time_to_settle(world.stamp(milliseconds(5)));
    EXPECT_GT(recent, settled);
    EXPECT_LE(recent, milliseconds(205));
}

// A write stamps the file first, and may then wait for a core for a while before it copies the bytes.
TEST(FilesystemClocks, AWriterOnThisNodeMayStandStill) {
    for (const nanoseconds tick : {nanoseconds(seconds(1)), nanoseconds(4'000'001)}) {
        World world({}, tick, true);
        const Timestamp changed = world.stamp();
        world.pass(tick - milliseconds(345) % tick + milliseconds(100));  // the next tick began 100 ms ago
        EXPECT_GT(world.time_to_settle(changed), settled);
    }
}

TEST(FilesystemClocks, KnowsManyFilesystemsAndForgetsSome) {
    World world;
    for (std::uint64_t i = 0; i < 10'000; ++i) {
        world.clocks.note(i, world.stamp());
    }
    EXPECT_GT(world.time_to_settle(world.stamp()), settled);
}

}  // namespace
}  // namespace copper
