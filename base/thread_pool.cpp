#include "base/thread_pool.hpp"

#include <unistd.h>

#include <utility>

namespace copper {

ThreadPool::ThreadPool(Options options) : options_(options) {
    threads_.reserve(options_.threads);
    for (std::size_t i = 0; i < options_.threads; ++i) {
        threads_.emplace_back([this] { work(); });
    }
}

ThreadPool::~ThreadPool() {
    std::deque<Job> dropped;  // destroyed without the lock
    {
        auto state = state_.lock();
        state->closed = true;
        dropped.swap(state->jobs);
    }
    dropped.clear();
    wake_.notify_all();
    for (auto& thread : threads_) {
        thread.join();
    }
}

bool ThreadPool::submit(Job job) {
    {
        auto state = state_.lock();
        if (state->closed || state->jobs.size() >= options_.queued_max) {
            return false;
        }
        state->jobs.push_back(std::move(job));
    }
    wake_.notify_one();
    return true;
}

void ThreadPool::work() {
    // Only a negative one can fail.
    static_cast<void>(::nice(options_.nice));
    while (true) {
        Job job;
        {
            auto state = state_.lock();
            wake_.wait(state.lock(), [&] { return state->closed || !state->jobs.empty(); });
            if (state->closed) {
                return;
            }
            job = std::move(state->jobs.front());
            state->jobs.pop_front();
        }
        job();
    }
}

}  // namespace copper
