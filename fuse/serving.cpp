#include "fuse/serving.hpp"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace copper {
namespace {

// The kernel gives out requests only if there is room for the longest: a write.
constexpr std::size_t longest_request_bytes = extent_bytes + (64U << 10);

}  // namespace

Serving::Serving(Connection& connection, LastingMemory& memory, FuseCounters& counters,
                 Interrupts& interrupts)
    : connection_(connection),
      memory_(memory),
      counters_(counters),
      interrupts_(interrupts),
      slots_(memory.requests()) {}

std::optional<std::string> Serving::resume(const UniqueFd& device) {
    const auto find_init = [this] {
        return std::find_if(unanswered_.begin(), unanswered_.end(),
                            [](const auto& slot) { return is_init(slot.bytes()); });
    };
    auto error = connection_.adopt(device, [&] {
        unanswered_ = slots_.take_unanswered();
        std::vector<std::byte> request(memory_.init().begin(), memory_.init().end());
        if (find_init() == unanswered_.end() && !request.empty()) {  // empty: the kernel has not asked yet
            process({}, request);
        }
    });
    // If the previous process was killed before the kernel got the answer, INIT is among them.
    if (const auto init = find_init(); !error && init != unanswered_.end()) {
        process_unanswered(std::move(*init));
        unanswered_.erase(init);
    }
    return error;
}

// False if no more requests will come. A request that does not fit into its slot continues in `rest`.
bool Serving::take_request(std::span<std::byte> rest) {
    auto slot = slots_.take();
    if (!slot) {
        return false;
    }
    const auto bytes = slot->bytes();
    const auto size = connection_.take(bytes, rest);
    if (!size || *size == 0) {
        return size.has_value();
    }
    ++counters_.requests;
    if (const auto interrupted = interrupted_by(bytes.first(std::min(*size, bytes.size())))) {
        interrupts_.note(*interrupted);
        return true;
    }
    if (*size <= bytes.size()) {
        process(std::move(*slot), bytes.first(*size));
        return true;
    }
    // Inodes to forget. (If the process is killed now, its successor does not forget them.)
    std::vector<std::byte> whole(bytes.begin(), bytes.end());
    whole.insert(whole.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(*size - bytes.size()));
    process(std::move(*slot), whole);
    return true;
}

void Serving::process(RequestSlots::Lease slot, std::span<std::byte> request) {
    if (is_init(request)) {
        memory_.keep_init(request);
    }
    const SlotInHand in_hand(std::move(slot));
    connection_.process(request);
}

void Serving::process_unanswered(RequestSlots::Lease slot) {
    const auto bytes = slot.bytes();
    interrupts_.note(asker_of(bytes).request);  // perhaps: the previous process may have heard of it
    process(std::move(slot), bytes.first(request_bytes(bytes)));
}

void Serving::take_requests() {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    const auto rest = std::make_unique_for_overwrite<std::byte[]>(longest_request_bytes);
    while (!connection_.has_exited() && take_request({rest.get(), longest_request_bytes})) {
    }
    end();
}

void Serving::end() {
    connection_.exit();
    slots_.close();
    *ended_.lock() = true;
    end_.notify_all();
}

void Serving::wait_for_end() {
    auto ended = ended_.lock();
    end_.wait(ended.lock(), [&ended] { return *ended; });
}

void Serving::run(std::size_t threads, const std::function<void()>& begun) {
    // The first request is INIT, which a new mount sends at once.
    const auto rest = std::make_unique_for_overwrite<std::byte[]>(longest_request_bytes);
    if (!memory_.init().empty() || take_request({rest.get(), longest_request_bytes})) {
        begun();
        for (auto& slot : std::exchange(unanswered_, {})) {
            process_unanswered(std::move(slot));
        }
    }
    std::vector<std::thread> takers;
    try {
        while (takers.size() < threads) {
            takers.emplace_back([this] { take_requests(); });
        }
    } catch (const std::system_error&) {  // the system refuses more threads
        if (takers.empty()) {
            throw;
        }
    }
    wait_for_end();
    for (auto& taker : takers) {
        ::pthread_cancel(taker.native_handle());
        taker.join();
    }
}

}  // namespace copper
