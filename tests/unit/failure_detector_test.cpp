#include "collectives/failure_detector.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<Rank>;

class Detector : public testing::Test {
  protected:
    FailureDetector::Verdict after(int ms, const std::set<Rank>& awaited) {
        now += milliseconds(ms);
        return detector.look(awaited, suspects, now);
    }
    bool is_quiet(const FailureDetector::Verdict& verdict) {
        return verdict.to_ping.empty() && verdict.silent.empty() && verdict.out_of_reach.empty();
    }

    FailureDetector detector{
        {.patience = milliseconds(300), .answer_time = milliseconds(100), .pings_max = 2}};
    std::vector<Rank> suspects;
    TimePoint now{};
};

TEST_F(Detector, LosesANodeThatDoesNotAnswerItsPings) {
    EXPECT_TRUE(is_quiet(after(0, {Rank{3}})));
    EXPECT_TRUE(is_quiet(after(299, {Rank{3}})));
    EXPECT_EQ(after(1, {Rank{3}}).to_ping, Ranks{Rank{3}});
    EXPECT_TRUE(is_quiet(after(99, {Rank{3}})));
    EXPECT_EQ(after(1, {Rank{3}}).to_ping, Ranks{Rank{3}});
    EXPECT_EQ(after(100, {Rank{3}}).silent, Ranks{Rank{3}});
}

TEST_F(Detector, AnyWordBeginsItsPatienceAnew) {
    after(0, {Rank{1}, Rank{2}});
    EXPECT_EQ(after(300, {Rank{1}, Rank{2}}).to_ping, (Ranks{Rank{1}, Rank{2}}));
    detector.heard(Rank{2}, now);
    EXPECT_EQ(after(100, {Rank{1}, Rank{2}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(after(100, {Rank{1}, Rank{2}}).silent, Ranks{Rank{1}});
    EXPECT_TRUE(is_quiet(after(399, {Rank{2}})));
    EXPECT_EQ(after(1, {Rank{2}}).to_ping, Ranks{Rank{2}}) << "600 ms, now that it has answered a ping";
}

// A node that waits for long does not ask all the time.
TEST_F(Detector, EachAnsweredPingDoublesThePatience) {
    int pings = 0;
    for (int i = 0; i < 6000; ++i) {
        if (!after(10, {Rank{1}}).to_ping.empty()) {
            ++pings;
            detector.heard(Rank{1}, now);
        }
    }
    EXPECT_GE(pings, 60000 / 2400);
    EXPECT_LE(pings, 60000 / 2400 + 4);
    // A new wait is a new beginning.
    after(0, {});
    after(0, {Rank{1}});
    EXPECT_EQ(after(300, {Rank{1}}).to_ping, Ranks{Rank{1}});
}

TEST_F(Detector, ANodeThatIsSilentAgainIsOutOfReachUntilItAnswersAPing) {
    const auto verdict_on = [this](Rank rank) {
        after(0, {rank});
        after(300, {rank});
        after(100, {rank});
        return after(100, {rank});
    };
    EXPECT_EQ(verdict_on(Rank{3}).silent, Ranks{Rank{3}});
    EXPECT_TRUE(detector.is_accused(Rank{3}));
    for (int i = 0; i < 2; ++i) {
        const auto verdict = verdict_on(Rank{3});
        EXPECT_TRUE(verdict.silent.empty());
        EXPECT_EQ(verdict.out_of_reach, Ranks{Rank{3}});
    }
    EXPECT_EQ(after(5000, {}).to_ping, Ranks{Rank{3}}) << "perhaps it is again";
    EXPECT_TRUE(detector.answered_ping(Rank{3}));
    EXPECT_FALSE(detector.answered_ping(Rank{3}));
    EXPECT_FALSE(detector.is_accused(Rank{3}));
    EXPECT_TRUE(is_quiet(after(5000, {})));
    EXPECT_EQ(verdict_on(Rank{3}).silent, Ranks{Rank{3}});
}

TEST_F(Detector, OfManyNodesOutOfReachAFewArePingedAtATime) {
    std::set<Rank> all;
    for (std::uint32_t rank = 1; rank <= 100; ++rank) {
        all.insert(Rank{rank});
    }
    for (int i = 0; i < 2; ++i) {
        for (const int ms : {0, 300, 100, 100}) {
            after(ms, all);
        }
    }
    std::set<Rank> pinged;
    for (int round = 0; round < 7; ++round) {
        const auto to_ping = after(5000, {}).to_ping;
        EXPECT_LE(to_ping.size(), 16U);
        pinged.insert(to_ping.begin(), to_ping.end());
    }
    EXPECT_EQ(pinged, all);
}

// However many nodes suspect one: each time a few of them ping it, and each of them in its turn.
TEST(FailureDetectors, OfManyNodesAFewPingASuspect) {
    constexpr std::uint32_t nodes = 1000;
    std::vector<FailureDetector> detectors;
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
        detectors.push_back(FailureDetector({.self = Rank{rank}, .nodes = nodes}));
        detectors.back().look({}, {}, TimePoint{});
    }
    std::set<std::uint32_t> have_pinged;
    constexpr int rounds_for_all = 63;  // of 1,000 nodes 16 at a time
    for (int round = 1; round <= rounds_for_all; ++round) {
        std::size_t pings = 0;
        for (std::uint32_t rank = 0; rank < nodes; ++rank) {
            if (!detectors[rank].look({}, {Rank{7}}, TimePoint{round * milliseconds(5000)}).to_ping.empty()) {
                ++pings;
                have_pinged.insert(rank);
            }
        }
        EXPECT_GE(pings, 1U);
        EXPECT_LE(pings, 16U);
    }
    EXPECT_EQ(have_pinged.size(), nodes);
}

TEST_F(Detector, DoesNotCareForNodesThatNobodyWaitsFor) {
    after(0, {Rank{1}});
    EXPECT_TRUE(is_quiet(after(299, {})));
    EXPECT_TRUE(is_quiet(after(1, {Rank{1}}))) << "its patience begins anew";
}

// A program that asks for one object after the other, each of them soon elsewhere, would wait for it for
// ever.
TEST_F(Detector, WhoWasPingedHasToAnswerAlsoIfNobodyWaitsForItAnyMore) {
    after(0, {Rank{1}, Rank{2}});
    EXPECT_EQ(after(300, {Rank{1}, Rank{2}}).to_ping, (Ranks{Rank{1}, Rank{2}}));
    detector.heard(Rank{2}, now);
    EXPECT_EQ(after(100, {Rank{3}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(after(100, {}).silent, Ranks{Rank{1}});
    EXPECT_TRUE(is_quiet(after(1000, {})));
}

// As when the whole machine stood still: pings go out before anybody is blamed.
TEST_F(Detector, ALateLookIsNotHeldAgainstThem) {
    after(0, {Rank{1}});
    EXPECT_EQ(after(60000, {Rank{1}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(after(60000, {Rank{1}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(after(60000, {Rank{1}}).silent, Ranks{Rank{1}});
}

TEST_F(Detector, TriesLostNodesAgainNowAndThen) {
    after(0, {});
    suspects = {Rank{4}};
    EXPECT_TRUE(is_quiet(after(4999, {})));
    EXPECT_EQ(after(1, {}).to_ping, Ranks{Rank{4}});
    EXPECT_TRUE(is_quiet(after(4999, {})));
    EXPECT_EQ(after(1, {}).to_ping, Ranks{Rank{4}});
}

}  // namespace
}  // namespace copper
