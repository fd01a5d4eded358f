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

bool ConcurrentCalls::take_thread(std::uint64_t filesystem) {
    auto taken = taken_.lock();
    std::size_t& of_this = (*taken)[filesystem];
    if (of_this == threads_of_one_max) {
        return false;
    }
    ++of_this;
    return true;
}

void ConcurrentCalls::give_back_thread(std::uint64_t filesystem) {
    auto taken = taken_.lock();
    const auto of_this = taken->find(filesystem);
    if (--of_this->second == 0) {
        taken->erase(of_this);
    }
}

void ConcurrentCalls::for_each(int directory, std::size_t count, const std::function<void(std::size_t)>& f,
                               const std::function<bool()>& go_on) {
    const auto block_count = (count + calls_per_block - 1) / calls_per_block;
    const auto blocks = std::make_shared<Blocks>(block_count, [&](std::size_t block) {
        const auto end = std::min((block + 1) * calls_per_block, count);
        for (auto i = block * calls_per_block; i < end && (block == 0 || go_on()); ++i) {
            f(i);
        }
    });
    // This thread works too, so a pool that is busy elsewhere, or full, only makes it slower. Where the
    // filesystem answers at once, it is done before others have woken up. Its client may do so for the first
    // names alone.
    std::size_t left = block_count;
    for (bool is_slow = false; left > 0 && !is_slow; --left) {
        const auto began = std::chrono::steady_clock::now();
        blocks->work_on_one();
        is_slow = (std::chrono::steady_clock::now() - began) * left > worth_waking_for;
    }
    if (left > 0) {
        const auto parent = parent_directory(directory);
        const std::uint64_t filesystem = parent ? parent->filesystem : 0;
        for (std::size_t helper = 0; helper < left && take_thread(filesystem); ++helper) {
            const bool begins = pool_.submit([this, blocks, filesystem] {
                blocks->work();
                give_back_thread(filesystem);
            });
            if (!begins) {
                give_back_thread(filesystem);
                break;
            }
        }
    }
    blocks->work();
    blocks->wait();
}

}  // namespace copper
