// Threads for jobs that wait (for the filesystem or the kernel), so that no other thread has to.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/guarded.hpp"

namespace copper {

// Thread-safe. A thread starts when a job finds none that is idle. The destructor waits for running jobs and
// drops the others.
class ThreadPool {
  public:
    using Job = std::function<void()>;

    struct Options {
        std::size_t threads_max = 8;
        std::size_t threads_min = 0;  // start at once: later, the system may refuse them
        std::size_t queued_max = 65536;
        // Added to the nice value of the thread that submits a job: on Linux each thread has its own.
        int nice = 0;
    };
    // Throws std::system_error if `threads_min` cannot start.
    explicit ThreadPool(Options options);
    ~ThreadPool();

    // False if queued_max jobs are waiting, or no thread can start: the job will not run.
    [[nodiscard]] bool submit(Job job);

  private:
    struct State {
        std::deque<Job> jobs;
        std::vector<std::thread> threads;
        std::size_t idle = 0;
        bool closed = false;
    };
    bool has_thread(State& state);
    void work();

    const Options options_;
    Guarded<State> state_;
    std::condition_variable wake_;
};

}  // namespace copper
