#include "base/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <future>
#include <memory>

namespace copper {
namespace {

TEST(ThreadPool, RunsEveryJobOnce) {
    constexpr int jobs = 5000;
    std::atomic<int> ran = 0;
    std::promise<void> all;
    ThreadPool pool({.threads_max = 4});
    for (int i = 0; i < jobs; ++i) {
        ASSERT_TRUE(pool.submit([&] {
            if (++ran == jobs) {
                all.set_value();
            }
        }));
    }
    all.get_future().wait();
    EXPECT_EQ(ran, jobs);
}

TEST(ThreadPool, RunsAsManyJobsAtOnceAsItHasThreads) {
    std::barrier meeting(5);
    ThreadPool pool({.threads_max = 4});
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(pool.submit([&] { meeting.arrive_and_wait(); }));
    }
    meeting.arrive_and_wait();  // hangs if fewer run at once
}

TEST(ThreadPool, ItsThreadsLetOthersGoFirst) {
    constexpr int lowest = 19;
    const int own = ::getpriority(PRIO_PROCESS, 0);  // on Linux, of the calling thread
    std::promise<int> found;
    ThreadPool pool({.threads_max = 1, .nice = 5});
    ASSERT_TRUE(pool.submit([&] { found.set_value(::getpriority(PRIO_PROCESS, 0)); }));
    EXPECT_EQ(found.get_future().get(), std::min(own + 5, lowest));
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), own);
}

TEST(ThreadPool, RefusesWhatExceedsTheQueue) {
    std::promise<void> started;
    std::promise<void> release;
    std::atomic<int> ran = 0;
    {
        ThreadPool pool({.threads_max = 1, .queued_max = 2});
        ASSERT_TRUE(pool.submit([&] {
            started.set_value();
            release.get_future().wait();
        }));
        started.get_future().wait();
        EXPECT_TRUE(pool.submit([&] { ++ran; }));
        EXPECT_TRUE(pool.submit([&] { ++ran; }));
        EXPECT_FALSE(pool.submit([&] { ran += 100; }));
        release.set_value();
    }
    EXPECT_LE(ran, 2);
}

TEST(ThreadPool, DropsWhatHasNotBegunAndWaitsForWhatHas) {
    std::promise<void> started;
    std::promise<void> release;
    std::atomic<bool> finished = false;
    const auto owned = std::make_shared<int>(1);
    std::thread releaser;
    {
        ThreadPool pool({.threads_max = 1});
        ASSERT_TRUE(pool.submit([&] {
            started.set_value();
            release.get_future().wait();
            finished = true;
        }));
        started.get_future().wait();
        ASSERT_TRUE(pool.submit([owned] { FAIL() << "dropped jobs do not run"; }));
        // The queued job lets go of `owned` only in the pool's destructor, before that waits.
        releaser = std::thread([&] {
            while (owned.use_count() > 1) {
                std::this_thread::yield();
            }
            release.set_value();
        });
    }
    releaser.join();
    EXPECT_TRUE(finished);
    EXPECT_EQ(owned.use_count(), 1);
}

}  // namespace
}  // namespace copper
