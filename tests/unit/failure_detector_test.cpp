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
    EXPECT_EQ(after(100, {Rank{2}}).to_ping, Ranks{Rank{2}});
}

TEST_F(Detector, DoesNotCareForNodesThatNobodyWaitsFor) {
    after(0, {Rank{1}});
    EXPECT_EQ(after(300, {Rank{1}}).to_ping, Ranks{Rank{1}});
    EXPECT_TRUE(is_quiet(after(1000, {})));
    EXPECT_TRUE(is_quiet(after(0, {Rank{1}}))) << "its patience begins anew";
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
