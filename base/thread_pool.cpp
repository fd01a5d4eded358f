#include "base/thread_pool.hpp"

#include <unistd.h>

#include <system_error>
#include <utility>

namespace copper {

ThreadPool::ThreadPool(Options options) : options_(options) {
    auto state = state_.lock();
    while (state->threads.size() < options_.threads_min) {
        state->threads.emplace_back([this] { work(); });
    }
}

ThreadPool::~ThreadPool() {
    std::deque<Job> dropped;  // destroyed without the lock
    std::vector<std::thread> threads;
    {
        auto state = state_.lock();
        state->closed = true;
        dropped.swap(state->jobs);
        threads.swap(state->threads);
    }
    dropped.clear();
    wake_.notify_all();
    for (auto& thread : threads) {
        thread.join();
    }
}

// Starts one more thread if the idle ones are too few and there may be more.
bool ThreadPool::has_thread(State& state) {
    if (state.idle < state.jobs.size() && state.threads.size() < options_.threads_max) {
        try {
            state.threads.emplace_back([this] { work(); });
        } catch (const std::system_error&) {  // this process, or its user, has too many
        }
    }
    return !state.threads.empty();
}

bool ThreadPool::submit(Job job) {
    {
        auto state = state_.lock();
        if (state->closed || state->jobs.size() >= options_.queued_max) {
            return false;
        }
        state->jobs.push_back(std::move(job));
        if (!has_thread(*state)) {
            state->jobs.pop_back();
            return false;
        }
    }
    wake_.notify_one();
    return true;
}

void ThreadPool::work() {
    // Only a negative one can fail.
    [[maybe_unused]] const int niceness = ::nice(options_.nice);
    while (true) {
        Job job;
        {
            auto state = state_.lock();
            ++state->idle;
            wake_.wait(state.lock(), [&] { return state->closed || !state->jobs.empty(); });
            --state->idle;
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
