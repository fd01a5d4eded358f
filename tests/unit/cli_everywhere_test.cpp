#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.hpp"
#include "tools/copper/nodes/everywhere.hpp"

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

// A remote shell that some of the nodes answer.
constexpr const char* remote_shell_script = R"sh(#!/bin/sh
echo "$1" >>"$0.asked"
case $1 in
    *well*) exit 0 ;;
    *known*) echo why, in plain words ;;
    *) echo Connection refused ;;
esac
exit 255
)sh";

class EverywhereTest : public testing::Test {
  protected:
    EverywhereTest() {
        write_program(launcher_.program, launcher_script);
        write_program(remote_shell_, remote_shell_script);
    }

    static void write_program(const std::string& path, const char* text) {
        std::ofstream(path) << text;
        ::chmod(path.c_str(), 0755);
    }

    static std::vector<std::string> lines_of(const std::string& path) {
        std::vector<std::string> lines;
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) {
            lines.push_back(line);
        }
        return lines;
    }

    // Of the only host where the command fails.
    std::string trouble(Family family, const std::vector<std::string>& hosts) {
        launcher_.family = family;
        launcher_.extra = {"-launcher-exec", remote_shell_};
        const auto troubles = troubles_on_hosts(launcher_, hosts, {"true"});
        EXPECT_EQ(troubles.size(), 1U);
        return troubles.empty() ? "" : troubles.front().reason;
    }

    test::TemporaryDirectory directory_;
    Launcher launcher_{.family = Family::slurm, .program = directory_.path() + "/srun", .extra = {}};
    const std::string remote_shell_ = directory_.path() + "/ssh";
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

TEST_F(EverywhereTest, OneCallReachesAnyNumberOfHosts) {
    // More than one argument of a command may hold, which is 128 KiB.
    const std::string tail(50, 'x');
    std::vector<std::string> hosts;
    for (int i = 0; i < 3000; ++i) {
        hosts.push_back("well" + std::to_string(i) + "." + tail);
    }
    for (const auto family : {Family::slurm, Family::open_mpi_4, Family::hydra, Family::pals}) {
        write_program(launcher_.program, R"sh(#!/bin/sh
echo "$*" >>"$0.calls"
for word; do case $word in *asked-*) cp "${word#*=}" "$0.hosts" ;; esac; done
sed 's/^/copper-done /' "$0.hosts"
)sh");
        launcher_.family = family;
        EXPECT_TRUE(run_on_hosts(launcher_, hosts, {"true"}).empty());
        EXPECT_EQ(lines_of(launcher_.program + ".calls").size(), 1U) << name_of(family);
        EXPECT_EQ(lines_of(launcher_.program + ".hosts"), hosts) << name_of(family);
        std::filesystem::remove(launcher_.program + ".calls");
        std::filesystem::remove(launcher_.program + ".hosts");
    }
}

// Open MPI's, with --enable-recovery.
TEST_F(EverywhereTest, ALauncherMayCallAFailureASuccess) {
    write_program(launcher_.program, "#!/bin/sh\necho copper-done done1\n");
    EXPECT_TRUE(run_on_hosts(launcher_, {"done1"}, {"true"}).empty());
    write_program(launcher_.program, R"sh(#!/bin/sh
case $* in *done1,*) echo copper-done done1 ;; *) exit 1 ;; esac
)sh");
    const auto troubles = run_on_hosts(launcher_, {"done1", "broken2"}, {"true"});
    ASSERT_EQ(troubles.size(), 1U);
    EXPECT_EQ(troubles.front().host, "broken2");
}

TEST_F(EverywhereTest, OnlyHostsThatAreNotDoneAreAskedAlone) {
    write_program(launcher_.program, R"sh(#!/bin/sh
echo "$*" >>"$0.calls"
case $* in *done1,*) printf 'copper-done done1\n0: copper-done done3.site\n' ;; esac
exit 1
)sh");
    const auto troubles = run_on_hosts(launcher_, {"done1", "broken2", "done3"}, {"true"});
    ASSERT_EQ(troubles.size(), 1U);
    EXPECT_EQ(troubles.front().host, "broken2");
    EXPECT_EQ(lines_of(launcher_.program + ".calls").size(), 2U);
}

// Hydra's does not end if one node cannot be reached.
TEST_F(EverywhereTest, WhatHostsSayIsHeardThoughTheLauncherDoesNotEnd) {
    write_program(launcher_.program, "#!/bin/sh\necho well says this\nexec sleep 60\n");
    const auto output = ask_all(launcher_, {"well", "absent"}, {"true"}, std::chrono::milliseconds(500));
    ASSERT_TRUE(output);
    EXPECT_FALSE(succeeded(*output));
    EXPECT_EQ(output->text, "well says this\n");
}

TEST_F(EverywhereTest, VariablesOfTheApplicationStayHereButForThoseThatAreKept) {
    ::setenv("UCX_TLS", "kept", 1);
    ::setenv("UCX_NET_DEVICES", "of the application", 1);
    write_program(launcher_.program, "#!/bin/sh\necho \"$UCX_TLS $UCX_NET_DEVICES\"\n");
    launcher_.keep_env = {"UCX_TLS"};
    EXPECT_EQ(said_by_all(launcher_, {"well"}, {"true"}), "kept \n");
    EXPECT_EQ(said_by_each(launcher_, {"well"}, {"true"}), "kept \n\n");
    ::unsetenv("UCX_TLS");
    ::unsetenv("UCX_NET_DEVICES");
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

TEST_F(EverywhereTest, ARemoteShellTellsWhyRatherThanTheLauncher) {
    EXPECT_EQ(trouble(Family::hydra, {"well0", "well1", "known-broken"}), "why, in plain words");
}

// As Hydra's does.
TEST_F(EverywhereTest, ALauncherThatDoesNotEndWhereTheRemoteShellFailsIsATrouble) {
    write_program(launcher_.program, "#!/bin/sh\nexec sleep 60\n");
    EXPECT_EQ(trouble(Family::hydra, {"well0", "well1", "known-broken"}), "why, in plain words");
}

TEST_F(EverywhereTest, TheLauncherTellsWhyIfNoHostHasARemoteShell) {
    EXPECT_EQ(trouble(Family::hydra, {"good0", "good1", "broken"}), "cannot start");
}

TEST_F(EverywhereTest, NoRemoteShellIsAskedWhereTheLauncherNeedsNone) {
    for (const auto family : {Family::pals, Family::slurm}) {
        EXPECT_EQ(trouble(family, {"well0", "well1", "known-broken"}), "cannot start");
    }
    EXPECT_FALSE(std::filesystem::exists(remote_shell_ + ".asked"));
}

}  // namespace
}  // namespace copper::cli
