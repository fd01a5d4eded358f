#include "fuse/interrupts.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <string>

namespace copper {
namespace {

struct Signals {
    int of_thread = 0;
    int of_process = 0;
    int blocked = 0;
    int ignored = 0;
    int handled = 0;
};

std::string line(const char* name, int signal) {
    char text[64];
    const unsigned long long set = signal == 0 ? 0 : 1ULL << (signal - 1);
    std::snprintf(text, sizeof text, "%s:\t%016llx\n", name, set);
    return text;
}

std::string status(const Signals& signals) {
    return "Name:\tpython3\nPid:\t7\nSigQ:\t0/100\n" + line("SigPnd", signals.of_thread) +
           line("ShdPnd", signals.of_process) + line("SigBlk", signals.blocked) +
           line("SigIgn", signals.ignored) + line("SigCgt", signals.handled) + "CapInh:\tffffffffffffffff\n";
}

TEST(Interrupts, SigkillEndsAThread) {
    EXPECT_TRUE(will_end(status({.of_thread = SIGKILL})));
    EXPECT_TRUE(will_end(status({.of_process = SIGKILL})));
}

// It is not turned into SIGKILL if it writes a core, or if another signal was pending before.
TEST(Interrupts, AnotherSignalEndsAThreadUnlessItIsSpared) {
    for (const int signal : {SIGQUIT, SIGTERM, SIGUSR1}) {
        EXPECT_TRUE(will_end(status({.of_process = signal})));
        EXPECT_TRUE(will_end(status({.of_process = signal, .handled = SIGALRM})));
        EXPECT_FALSE(will_end(status({.of_process = signal, .handled = signal})));
        EXPECT_FALSE(will_end(status({.of_process = signal, .ignored = signal})));
        EXPECT_FALSE(will_end(status({.of_process = signal, .blocked = signal})));
    }
}

TEST(Interrupts, OtherSignalsDoNot) {
    EXPECT_FALSE(will_end(status({})));
    EXPECT_FALSE(will_end(status({.of_process = SIGALRM, .handled = SIGALRM})));
    EXPECT_FALSE(will_end(status({.of_thread = SIGTSTP})));
    EXPECT_FALSE(will_end(status({.of_process = SIGCHLD})));
}

TEST(Interrupts, NothingIsKnownOfAThreadThatIsGone) {
    EXPECT_FALSE(will_end(""));
    EXPECT_FALSE(will_end("garbage\nSigPnd:\tzz\n"));
}

}  // namespace
}  // namespace copper
