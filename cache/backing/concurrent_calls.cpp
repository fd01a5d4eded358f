#include "cache/backing/concurrent_calls.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <vector>

#include "cache/backing/pace.hpp"
#include "cache/backing/time_waited.hpp"

namespace copper {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t calls_per_block = 4;
constexpr std::chrono::milliseconds worth_waking_for{1};
constexpr std::chrono::milliseconds long_wait{50};
constexpr std::size_t looked_up_to_find_out = 5 * calls_per_block;  // by as many threads as there are blocks

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

// What is left after the first calls, which this thread makes alone.
struct Left {
    std::size_t begin = 0;
    std::vector<nanoseconds> waited;  // by each call
    bool is_worth_waking = false;     // threads, for the others
    bool is_long_wait = false;        // unless they are made at once
};

Left call_first(std::size_t count, const ConcurrentCalls::Call& f) {
    Left left;
    const auto began = std::chrono::steady_clock::now();
    nanoseconds waited{0};
    for (; left.begin < std::min(calls_per_block, count); ++left.begin) {
        const TimeWaited time;
        f(left.begin);
        left.waited.push_back(time.elapsed());
        waited += left.waited.back();
    }
    const auto blocks = (count + calls_per_block - 1) / calls_per_block;
    left.is_worth_waking = (std::chrono::steady_clock::now() - began) * blocks > worth_waking_for;
    left.is_long_wait = waited * blocks > long_wait;
    return left;
}

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

void ConcurrentCalls::call_at_once(int directory, std::size_t begin, std::size_t end, std::size_t helpers_max,
                                   const Call& f) {
    const auto block_count = (end - begin + calls_per_block - 1) / calls_per_block;
    const auto blocks = std::make_shared<Blocks>(block_count, [&](std::size_t block) {
        const auto first = begin + block * calls_per_block;
        for (auto i = first; i < std::min(first + calls_per_block, end); ++i) {
            f(i);
        }
    });
    const auto parent = parent_directory(directory);
    const std::uint64_t filesystem = parent ? parent->filesystem : 0;
    for (std::size_t helper = 1; helper < block_count && helper <= helpers_max && take_thread(filesystem);
         ++helper) {
        const bool begins = pool_.submit([this, blocks, filesystem] {
            blocks->work();
            give_back_thread(filesystem);
        });
        if (!begins) {
            give_back_thread(filesystem);
            break;
        }
    }
    // This thread works too, so a pool that is busy elsewhere, or full, only makes it slower.
    blocks->work();
    blocks->wait();
}

void ConcurrentCalls::for_each(int directory, std::size_t count, const Call& f) {
    // Where the filesystem answers at once, this is done before others have woken up.
    const auto left = call_first(count, f);
    call_at_once(directory, left.begin, count, left.is_worth_waking ? threads_of_one_max : 0, f);
}

void ConcurrentCalls::look_up_each(int directory, std::size_t count, const Call& f, Pace& pace) {
    auto left = call_first(count, f);
    const std::size_t end = left.begin + looked_up_to_find_out;
    if (left.is_long_wait && end <= count && pace.lookups() != Pace::Lookups::at_once) {
        std::vector<nanoseconds> together(looked_up_to_find_out);
        const auto began = std::chrono::steady_clock::now();
        call_at_once(directory, left.begin, end, looked_up_to_find_out / calls_per_block, [&](std::size_t i) {
            f(i);
            together[i - left.begin] = std::chrono::steady_clock::now() - began;
        });
        if (!pace.note_lookups(std::move(left.waited), std::move(together))) {
            return;
        }
        left.begin = end;
    }
    call_at_once(directory, left.begin, count, left.is_worth_waking ? threads_of_one_max : 0, f);
}

}  // namespace copper
