#include "base/doorbell.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr auto long_enough = 60s;

TimePoint now() {
    return std::chrono::steady_clock::now();
}

// Whether it was woken, and did not wait to the end.
bool is_woken(Doorbell& doorbell) {
    const TimePoint until = now() + long_enough;
    doorbell.wait(until);
    return now() < until;
}

TEST(Doorbell, WakesAtTheGivenTime) {
    Doorbell doorbell;
    const TimePoint until = now() + 20ms;
    doorbell.wait(until);
    EXPECT_GE(now(), until);
    doorbell.wait(now() - 1s);
}

TEST(Doorbell, IsHeardByWhoWaitsLater) {
    Doorbell doorbell;
    doorbell.reset();
    doorbell.ring();
    EXPECT_TRUE(is_woken(doorbell));
}

TEST(Doorbell, ForgetsWhatWasBeforeTheReset) {
    Doorbell doorbell;
    doorbell.ring();
    doorbell.reset();
    const TimePoint until = now() + 20ms;
    doorbell.wait(until);
    EXPECT_GE(now(), until);
}

TEST(Doorbell, WakesAThreadTimeAndAgain) {
    Doorbell question, answer;
    constexpr int times = 1000;
    std::thread other([&] {
        for (int i = 0; i < times; ++i) {
            question.wait({});
            question.reset();
            answer.ring();
        }
    });
    int answers = 0;
    for (int i = 0; i < times; ++i) {
        answer.reset();
        question.ring();
        answers += is_woken(answer) ? 1 : 0;
    }
    other.join();
    EXPECT_EQ(answers, times);
}

TEST(Doorbell, WakesAnotherProcess) {
    void* memory =
        ::mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* doorbell = new (memory) Doorbell;
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(is_woken(*doorbell) ? 0 : 1);
    }
    std::this_thread::sleep_for(20ms);  // then it usually sleeps
    doorbell->ring();
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    ::munmap(memory, sizeof(Doorbell));
}

}  // namespace
}  // namespace copper
