#include "daemon/lifecycle.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using Stage = Lifecycle::Stage;

Lifecycle serving() {
    Lifecycle node;
    node.mount();
    node.begin();
    return node;
}

Lifecycle failed() {
    Lifecycle node;
    node.fail("no room");
    return node;
}

TEST(Lifecycle, ANodeThatServesStopsAndLeaves) {
    Lifecycle node;
    EXPECT_TRUE(node.mount());
    EXPECT_TRUE(node.begin());
    EXPECT_EQ(node.stage(), Stage::serving);
    EXPECT_TRUE(node.stop(StopReason::asked));
    EXPECT_TRUE(node.leave(Parting::together));
    EXPECT_EQ(node.stage(), Stage::leaving);
    EXPECT_EQ(node.exit_code(), 0);
}

TEST(Lifecycle, AMountOutlivesItsDaemonOnlyOnceTheJobHasBegun) {
    Lifecycle node;
    EXPECT_FALSE(node.begin());
    EXPECT_TRUE(node.mount());
    EXPECT_EQ(node.stage(), Stage::mounted);
    node.stop(StopReason::signal);
    EXPECT_FALSE(node.begin());
    EXPECT_EQ(node.stage(), Stage::stopping);
}

TEST(Lifecycle, TheFirstReasonToStopCounts) {
    Lifecycle node = serving();
    EXPECT_TRUE(node.stop(StopReason::launcher_ended));
    EXPECT_FALSE(node.stop(StopReason::signal));
    EXPECT_TRUE(node.leave(Parting::alone));
    EXPECT_FALSE(node.stop(StopReason::unmounted));
    EXPECT_EQ(node.reason(), StopReason::launcher_ended);
}

TEST(Lifecycle, TheFirstPartingCounts) {
    Lifecycle node = serving();
    node.stop(StopReason::asked);
    EXPECT_TRUE(node.leave(Parting::alone));
    EXPECT_FALSE(node.leave(Parting::together));
    EXPECT_EQ(node.parting(), Parting::alone);
}

TEST(Lifecycle, NobodyLeavesWithoutAReason) {
    Lifecycle node = serving();
    EXPECT_FALSE(node.leave(Parting::together));
    EXPECT_EQ(node.stage(), Stage::serving);
}

TEST(Lifecycle, AFailedNodeNeitherMountsNorServes) {
    Lifecycle node = failed();
    EXPECT_FALSE(node.mount());
    EXPECT_FALSE(node.begin());
    EXPECT_FALSE(node.fail("again"));
    EXPECT_EQ(node.stage(), Stage::failed);
    EXPECT_EQ(node.error(), "no room");
}

TEST(Lifecycle, AFailureCountsToTheEndUnlessTheOthersGoOn) {
    Lifecycle alone = failed();
    alone.stop(StopReason::asked);
    EXPECT_EQ(alone.error(), "no room");
    EXPECT_EQ(alone.exit_code(), 1);

    Lifecycle missing = failed();
    missing.stop(StopReason::start_failed);
    EXPECT_EQ(missing.exit_code(), 0);

    Lifecycle first = serving();
    first.stop(StopReason::job_not_ready);
    EXPECT_EQ(first.exit_code(), 1);
}

}  // namespace
}  // namespace copper
