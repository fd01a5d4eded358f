#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "daemon/lease.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

using std::chrono::seconds;

constexpr ProcessName no_process{.pid = 1 << 30, .started = 1};

class LeaseTest : public testing::Test {
  protected:
    LeaseTest() {
        options_.mount = "/m";
        // Writes its words in one go.
        options_.lease = {"/bin/sh", "-c", "echo \"$*\" >>" + asked_, "sh"};
    }

    // Looks each second for so long, and lets each command end.
    void look_for(Lease& lease, seconds time, std::uint32_t rank, bool is_alone = false) {
        for (const auto end = now_ + time; now_ < end; now_ += seconds(1)) {
            lease.look(now_, rank, nodes, is_alone);
            while (::waitpid(-1, nullptr, WNOHANG) == 0) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
    }

    std::string asked() const {
        std::ifstream file(asked_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    static constexpr std::uint32_t nodes = 100;  // so the period is 70 s
    test::TemporaryDirectory directory_;
    const std::string asked_ = directory_.path() + "/asked";
    DaemonOptions options_;
    TimePoint now_ = std::chrono::steady_clock::now();
};

TEST_F(LeaseTest, TheFirstNodeAsksForAll) {
    Lease lease(options_, process_named(::getpid()));
    look_for(lease, seconds(150), 0);
    EXPECT_EQ(asked(), "--mount=/m\n--mount=/m\n--mount=/m\n");
}

TEST_F(LeaseTest, NoOtherNodeAsksWhileItsLauncherRuns) {
    Lease lease(options_, process_named(::getpid()));
    look_for(lease, seconds(300), 1);
    EXPECT_EQ(asked(), "");
}

TEST_F(LeaseTest, ANodeWithoutItsLauncherAsksForItself) {
    Lease lease(options_, no_process);
    look_for(lease, seconds(34), 49);
    EXPECT_EQ(asked(), "");
    look_for(lease, seconds(3), 49);
    EXPECT_EQ(asked(), "--mount=/m --local\n");
}

TEST_F(LeaseTest, SoDoesASuccessor) {
    Lease lease(options_, process_named(::getpid()));
    look_for(lease, seconds(300), 0, true);
    EXPECT_TRUE(asked().starts_with("--mount=/m --local\n"));
}

TEST_F(LeaseTest, OneCommandAtATime) {
    options_.lease = {"/bin/sh", "-c", "echo >>" + asked_ + "; exec sleep 1", "sh"};
    Lease lease(options_, no_process);
    for (int second = 0; second < 500; ++second) {
        lease.look(now_ + seconds(second), 0, nodes, false);
    }
    while (asked().empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(asked(), "\n");
}

TEST_F(LeaseTest, WithoutACommandNobodyAsks) {
    options_.lease.clear();
    Lease lease(options_, no_process);
    look_for(lease, seconds(300), 0);
    EXPECT_EQ(asked(), "");
}

}  // namespace
}  // namespace copper
