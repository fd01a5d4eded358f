#include "collectives/failure_detector.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using std::chrono::milliseconds;
using Ranks = std::vector<Rank>;

Ranks ranks_of(const std::vector<LostNode>& nodes) {
    Ranks ranks;
    for (const LostNode& node : nodes) {
        ranks.push_back(node.rank);
    }
    return ranks;
}

class Detector : public testing::Test {
  protected:
    FailureDetector::Verdict after(int ms, const std::set<Rank>& awaited) {
        now += milliseconds(ms);
        return detector.look(awaited, suspects, now);
    }
    bool is_quiet(const FailureDetector::Verdict& verdict) {
        return verdict.to_ping.empty() && verdict.lost.empty();
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
    EXPECT_EQ(ranks_of(after(100, {Rank{3}}).lost), Ranks{Rank{3}});
}

TEST_F(Detector, AnyWordBeginsItsPatienceAnew) {
    after(0, {Rank{1}, Rank{2}});
    EXPECT_EQ(after(300, {Rank{1}, Rank{2}}).to_ping, (Ranks{Rank{1}, Rank{2}}));
    detector.heard(Rank{2}, now);
    EXPECT_EQ(after(100, {Rank{1}, Rank{2}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(ranks_of(after(100, {Rank{1}, Rank{2}}).lost), Ranks{Rank{1}});
    EXPECT_TRUE(is_quiet(after(399, {Rank{2}})));
    EXPECT_EQ(after(1, {Rank{2}}).to_ping, Ranks{Rank{2}}) << "600 ms, now that it has answered a ping";
}

// Who waits for long does not ask all the time.
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

// However many nodes suspect one: each time a few of them ping it, and each of them in its turn.
TEST(FailureDetectors, OfManyNodesAFewPingASuspect) {
    constexpr std::uint32_t nodes = 1000;
    std::vector<FailureDetector> detectors;
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
        detectors.push_back(FailureDetector({.self = Rank{rank}, .nodes = nodes}));
        detectors.back().look({}, {}, TimePoint{});
    }
    std::set<std::uint32_t> have_pinged;
    for (int round = 1; round <= 16; ++round) {
        std::size_t pings = 0;
        for (std::uint32_t rank = 0; rank < nodes; ++rank) {
            if (!detectors[rank].look({}, {Rank{7}}, TimePoint{round * milliseconds(5000)}).to_ping.empty()) {
                ++pings;
                have_pinged.insert(rank);
            }
        }
        EXPECT_GE(pings, 1U);
        EXPECT_LE(pings, 64U);
    }
    EXPECT_EQ(have_pinged.size(), nodes);
}

class Views : public testing::Test {
  protected:
    Membership membership{{.size = 8, .self = Rank{0}}};
    FailureDetector detector{{}};
    const TimePoint now{std::chrono::hours(1)};
    static constexpr milliseconds second{1000};
};

TEST_F(Views, ASuspicionIsBelievedUnlessTheNodeWasHeardSince) {
    const View view{.suspects = {{Rank{3}, second}, {Rank{0}, second}, {Rank{99}, second}}};
    EXPECT_EQ(ranks_of(detector.lost(view, membership, now)), Ranks{Rank{3}});
    detector.heard(Rank{3}, now - second / 2);
    EXPECT_TRUE(detector.lost(view, membership, now).empty());
    EXPECT_TRUE(detector.lost({.suspects = {{Rank{3}, second / 4}}}, membership, now).size() == 1);
}

TEST_F(Views, AStaleSuspicionIsIgnored) {
    membership.lose({.rank = Rank{3}, .silent_since = now - 10 * second});
    membership.regain(Rank{3}, now - 5 * second);
    const View old{.epoch = membership.epoch() - 1, .suspects = {{Rank{3}, second}}};
    EXPECT_TRUE(detector.lost(old, membership, now).empty()) << "of an earlier view";
    const View silent_before{.epoch = 99, .suspects = {{Rank{3}, 6 * second}}};
    EXPECT_TRUE(detector.lost(silent_before, membership, now).empty()) << "from before it was heard";
    const View fresh{.epoch = 99, .suspects = {{Rank{3}, 4 * second}}};
    EXPECT_EQ(ranks_of(detector.lost(fresh, membership, now)), Ranks{Rank{3}});
}

TEST_F(Views, WhoeverWasHeardSinceItsSilenceBeganIsBack) {
    membership.lose({.rank = Rank{3}, .silent_since = now - 10 * second});
    membership.lose(Rank{4});
    const View earlier{.returned = {{Rank{3}, 11 * second}, {Rank{4}, second}, {Rank{5}, second}}};
    EXPECT_TRUE(FailureDetector::returned(earlier, membership, now).empty());
    const auto returned = FailureDetector::returned({.returned = {{Rank{3}, second}}}, membership, now);
    ASSERT_EQ(returned.size(), 1U);
    EXPECT_EQ(returned[0].rank, Rank{3});
    EXPECT_EQ(returned[0].heard, now - second);
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
    EXPECT_EQ(ranks_of(after(100, {}).lost), Ranks{Rank{1}});
    EXPECT_TRUE(is_quiet(after(1000, {})));
}

// As when the whole machine stood still: pings go out before anybody is blamed.
TEST_F(Detector, ALateLookIsNotHeldAgainstThem) {
    after(0, {Rank{1}});
    EXPECT_EQ(after(60000, {Rank{1}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(after(60000, {Rank{1}}).to_ping, Ranks{Rank{1}});
    EXPECT_EQ(ranks_of(after(60000, {Rank{1}}).lost), Ranks{Rank{1}});
}

TEST_F(Detector, SaysSinceWhenALostNodeIsSilent) {
    after(0, {Rank{3}});
    const auto first_ping = now + milliseconds(300);
    after(300, {Rank{3}});
    after(100, {Rank{3}});
    const auto verdict = after(100, {Rank{3}});
    ASSERT_EQ(verdict.lost.size(), 1U);
    EXPECT_EQ(verdict.lost[0].silent_since, first_ping);
}

TEST_F(Detector, RemembersWhenANodeWasHeard) {
    EXPECT_FALSE(detector.was_heard_since(Rank{1}, now));
    detector.heard(Rank{1}, now + milliseconds(5));
    EXPECT_TRUE(detector.was_heard_since(Rank{1}, now + milliseconds(4)));
    EXPECT_FALSE(detector.was_heard_since(Rank{1}, now + milliseconds(5)));
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
