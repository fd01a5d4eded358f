#include "cache/backing/concurrent_calls.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

namespace copper {
namespace {

constexpr std::size_t calls_per_block = 4;
constexpr std::chrono::milliseconds worth_waking_for{1};

// Blocks of work that several threads take in turn. A thread that comes too late finds none and touches
// nothing else: what `run` refers to may be gone by then.
class Blocks {
  public:
    Blocks(std::size_t count, std::function<void(std::size_t)> run) : count_(count), run_(std::move(run)) {}

    void work() {
        while (work_on_one()) {
        }
    }

    // False if none is left.
    bool work_on_one() {
        const auto block = next_++;
        if (block >= count_) {
            return false;
        }
        run_(block);
        if (++finished_ == count_) {
            finished_.notify_all();
        }
        return true;
    }

    void wait() const {
        for (auto finished = finished_.load(); finished != count_; finished = finished_.load()) {
            finished_.wait(finished);
        }
    }

  private:
    const std::size_t count_;
    const std::function<void(std::size_t)> run_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<std::size_t> finished_ = 0;
};

}  // namespace

ThreadPool& ConcurrentCalls::pool() {
    std::call_once(pool_made_, [this] {
        pool_ = std::make_unique<ThreadPool>(ThreadPool::Options{.threads = threads_max});
    });
    return *pool_;
}

void ConcurrentCalls::for_each(std::size_t count, const std::function<void(std::size_t)>& f) {
    const auto block_count = (count + calls_per_block - 1) / calls_per_block;
    const auto blocks = std::make_shared<Blocks>(block_count, [&](std::size_t block) {
        const auto end = std::min((block + 1) * calls_per_block, count);
        for (auto i = block * calls_per_block; i < end; ++i) {
            f(i);
        }
    });
    // This thread works too, so a pool that is busy elsewhere, or full, only makes it slower. Where the
    // filesystem answers at once, it is done before others have woken up.
    const auto began = std::chrono::steady_clock::now();
    blocks->work_on_one();
    const auto block_time = std::chrono::steady_clock::now() - began;
    if (block_time * block_count > worth_waking_for) {
        for (std::size_t helper = 1; helper < std::min(block_count, threads_max); ++helper) {
            if (!pool().submit([blocks] { blocks->work(); })) {
                break;
            }
        }
    }
    blocks->work();
    blocks->wait();
}

}  // namespace copper
