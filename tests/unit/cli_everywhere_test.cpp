#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/temporary_directory.hpp"
#include "tools/copper/everywhere.hpp"

namespace copper::cli {
namespace {

constexpr int waiting_hosts = 20;

// srun for hosts of three kinds. Those that wait do so until all of them have been asked.
constexpr const char* launcher_script = R"sh(#!/bin/sh
case $* in
    *waiting*)
        touch "$0.$$"
        while [ "$(ls "$0".* | wc -l)" -lt 20 ]; do sleep 0.5; done
        echo all were asked at once
        exit 3
        ;;
    *broken*)
        printf '\n------\ncannot\nstart\n'
        exit 3
        ;;
    *well*) echo copperd 1 ;;
esac
)sh";

class EverywhereTest : public testing::Test {
  protected:
    EverywhereTest() {
        std::ofstream(launcher_.program) << launcher_script;
        ::chmod(launcher_.program.c_str(), 0755);
    }

    test::TemporaryDirectory directory_;
    Launcher launcher_{.family = Family::slurm, .program = directory_.path() + "/srun", .extra = {}};
};

TEST_F(EverywhereTest, AHostThatAnswersLateHoldsUpNoOther) {
    std::vector<std::string> hosts;
    for (int i = 0; i < waiting_hosts; ++i) {
        hosts.push_back("waiting" + std::to_string(i));
        hosts.push_back("well" + std::to_string(i));
    }
    const auto troubles = troubles_on_hosts(launcher_, hosts, {"true"});
    ASSERT_EQ(troubles.size(), waiting_hosts);
    for (const auto& trouble : troubles) {
        EXPECT_TRUE(trouble.host.starts_with("waiting"));
        EXPECT_EQ(trouble.reason, "all were asked at once");
    }
}

TEST_F(EverywhereTest, NamesTheHostsThatFailed) {
    const auto troubles = run_on_hosts(launcher_, {"well0", "broken1", "well2", "broken3"}, {"true"});
    ASSERT_EQ(troubles.size(), 2U);
    EXPECT_EQ(troubles[0].host, "broken1");
    EXPECT_EQ(troubles[1].host, "broken3");
}

TEST_F(EverywhereTest, ATroubleSaysWhy) {
    auto troubles = troubles_on_hosts(launcher_, {"well", "broken"}, {"copperd", "--version"});
    ASSERT_EQ(troubles.size(), 1U);
    EXPECT_EQ(troubles.front().host, "broken");
    EXPECT_EQ(troubles.front().reason, "cannot start");
    troubles = troubles_on_hosts(launcher_, {"well", "lies"}, {"copperd", "--version"}, "copperd 1");
    ASSERT_EQ(troubles.size(), 1U);
    EXPECT_EQ(troubles.front().host, "lies");
}

}  // namespace
}  // namespace copper::cli
