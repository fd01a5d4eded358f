#include "daemon/pinning.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

TEST(Pinning, AListIsTakenAsItIs) {
    EXPECT_EQ(choose_cores("1,3-4", "0-7", {}), "1,3-4");
    EXPECT_EQ(choose_cores("4,3,1", "0-7", {}), "1,3-4");
}

TEST(Pinning, CoresThatDoNotExistAreAnError) {
    const auto chosen = choose_cores("2,8-9", "0-7", {});
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error(),
              "--cores 2,8-9: this machine has no core 8-9, or does not allow it; it has 0-7");
    EXPECT_FALSE(choose_cores("", "0-7", {}));
    EXPECT_FALSE(choose_cores("3-", "0-7", {}));
    EXPECT_FALSE(choose_cores("x", "0-7", {}));
}

TEST(Pinning, None) {
    EXPECT_EQ(choose_cores("none", "0-7", {{"NCPUS", "4"}}), "");
}

TEST(Pinning, AutoTakesTheHighestCoresThatTheJobLeaves) {
    EXPECT_EQ(choose_cores("auto", "0-7", {{"SLURM_CPUS_ON_NODE", "6"}}), "6-7");
    EXPECT_EQ(choose_cores("auto", "0-3,8-11", {{"SLURM_JOB_CPUS_PER_NODE", "7(x2)"}}), "11");
    EXPECT_EQ(choose_cores("auto", "0-7", {{"NCPUS", "5"}}), "5-7");
    EXPECT_EQ(choose_cores("auto", "0-127", {{"NCPUS", "64"}}), "120-127");
}

TEST(Pinning, AutoWithoutFreeCoresPinsNothing) {
    EXPECT_EQ(choose_cores("auto", "0-7", {}), "");
    EXPECT_EQ(choose_cores("auto", "0-7", {{"NCPUS", "8"}}), "");
    EXPECT_EQ(choose_cores("auto", "0-7", {{"NCPUS", "9"}}), "");
    EXPECT_EQ(choose_cores("auto", "0-7", {{"NCPUS", "many"}}), "");
}

TEST(Pinning, ThisMachine) {
    EXPECT_TRUE(pin_process("none"));
    EXPECT_FALSE(pin_process("100000"));
}

}  // namespace
}  // namespace copper
