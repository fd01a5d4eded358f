// Threads for jobs that wait (for the filesystem or the kernel), so that no other thread has to.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/guarded.hpp"

namespace copper {

// Thread-safe. The destructor waits for running jobs and drops the others.
class ThreadPool {
  public:
    using Job = std::function<void()>;

    struct Options {
        std::size_t threads = 8;
        std::size_t queued_max = 65536;
        // Added to the nice value of the thread that makes the pool: on Linux each thread has its own.
        int nice = 0;
    };
    explicit ThreadPool(Options options);
    ~ThreadPool();

    // False if queued_max jobs are waiting: the job will not run.
    [[nodiscard]] bool submit(Job job);

  private:
    struct State {
        std::deque<Job> jobs;
        bool closed = false;
    };
    void work();

    const Options options_;
    Guarded<State> state_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
};

}  // namespace copper
