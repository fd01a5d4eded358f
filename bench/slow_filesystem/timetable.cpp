#include "bench/slow_filesystem/timetable.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

namespace copper::bench {

Timetable::Timetable() : thread_([this] { run(); }) {}

Timetable::~Timetable() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

bool Timetable::is_later(const Entry& one, const Entry& other) {
    return std::tie(one.time, one.number) > std::tie(other.time, other.number);
}

void Timetable::call_at(Clock::time_point time, std::function<void()> call) {
    bool is_first = false;
    {
        const std::lock_guard lock(mutex_);
        const std::uint64_t number = number_++;
        heap_.push_back({.time = time, .number = number, .call = std::move(call)});
        std::push_heap(heap_.begin(), heap_.end(), is_later);
        is_first = heap_.front().number == number;
    }
    if (is_first) {
        changed_.notify_one();
    }
}

void Timetable::run() {
    ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // the kernel would add 50 us to each wait
    // A signal that ends the mount must reach the thread that waits for the end, as libfuse's workers see to.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::unique_lock lock(mutex_);
    while (!heap_.empty() || !ending_) {
        if (heap_.empty()) {
            changed_.wait(lock);
        } else if (const auto time = heap_.front().time; !ending_ && time > Clock::now()) {
            changed_.wait_until(lock, time);
        } else {
            std::pop_heap(heap_.begin(), heap_.end(), is_later);
            const auto call = std::move(heap_.back().call);
            heap_.pop_back();
            lock.unlock();
            call();
            lock.lock();
        }
    }
}

}  // namespace copper::bench
