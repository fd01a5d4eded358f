#include "daemon/silence.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/processes.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

class SilenceTest : public testing::Test {
  protected:
    SilenceTest() : process(::fork()) {
        if (process == 0) {
            while (true) {
                ::pause();
            }
        }
    }
    ~SilenceTest() override {
        ::kill(process, SIGKILL);
        ::waitpid(process, nullptr, 0);
    }

    const pid_t process;
};

TEST_F(SilenceTest, IsAsLongAsAProcessThatHangsSaysNothing) {
    Silence silence(process);
    std::this_thread::sleep_for(100ms);
    EXPECT_GE(silence.look(), 50ms) << "less by what it waited for a processor";
    std::this_thread::sleep_for(100ms);
    EXPECT_GE(silence.look(), 150ms);
    const auto spoken = Silence::Clock::now();
    silence.end();
    const auto told = silence.look();
    EXPECT_LE(told, Silence::Clock::now() - spoken);
}

TEST_F(SilenceTest, DoesNotCountWhileTheProcessIsStopped) {
    ::kill(process, SIGSTOP);
    ::waitpid(process, nullptr, WUNTRACED);
    Silence silence(process);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(silence.look(), 0ms);
    ::kill(process, SIGCONT);
    ::waitpid(process, nullptr, WCONTINUED);
    silence.look();
    std::this_thread::sleep_for(100ms);
    EXPECT_GE(silence.look(), 50ms);
}

TEST_F(SilenceTest, CountsLittleWhereNobodyLooked) {
    Silence silence(process);
    std::this_thread::sleep_for(3 * Silence::look_interval);
    EXPECT_LE(silence.look(), 2 * Silence::look_interval) << "this process was stopped, too";
}

TEST(StateLetter, IsThatOfTheKernel) {
    EXPECT_EQ(state_letter(::getpid()), 'R');
    EXPECT_EQ(state_letter(0), '?');
}

TEST(WaitChannel, IsNoneOfAProcessThatRuns) {
    EXPECT_EQ(wait_channel(::getpid()), "");
    EXPECT_EQ(wait_channel(0), "");
}

}  // namespace
}  // namespace copper
