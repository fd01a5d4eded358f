#include "fuse/request_slots.hpp"

#include <linux/fuse.h>

#include <algorithm>
#include <atomic>

namespace copper {
namespace {

std::atomic_ref<std::uint32_t> length_of(std::span<std::byte> slot) {
    return std::atomic_ref(reinterpret_cast<fuse_in_header*>(slot.data())->len);
}

}  // namespace

std::size_t request_bytes(std::span<const std::byte> slot) {
    const auto* header = reinterpret_cast<const fuse_in_header*>(slot.data());
    return header->len >= sizeof(fuse_in_header) && header->len <= slot.size() ? header->len : 0;
}

bool is_init(std::span<const std::byte> request) {
    return reinterpret_cast<const fuse_in_header*>(request.data())->opcode == FUSE_INIT;
}

std::optional<std::uint64_t> interrupted_by(std::span<const std::byte> request) {
    const auto* header = reinterpret_cast<const fuse_in_header*>(request.data());
    if (header->opcode != FUSE_INTERRUPT || request.size() < sizeof(*header) + sizeof(fuse_interrupt_in)) {
        return std::nullopt;
    }
    return reinterpret_cast<const fuse_interrupt_in*>(header + 1)->unique;
}

Asker asker_of(std::span<const std::byte> request) {
    const auto* header = reinterpret_cast<const fuse_in_header*>(request.data());
    return {.request = header->unique, .thread = static_cast<pid_t>(header->pid)};
}

RequestSlots::Lease::~Lease() {
    if (slots_ != nullptr) {
        slots_->give_back(index_);
    }
}

RequestSlots::RequestSlots(std::span<std::byte> memory) : memory_(memory) {
    auto state = state_.lock();
    state->free.reserve(count);
    // The first slots are taken first, again and again.
    for (std::uint32_t index = count; index-- > 0;) {
        if (request_bytes(slot(index)) == 0) {
            state->free.push_back(index);
        }
    }
}

std::optional<RequestSlots::Lease> RequestSlots::take() {
    std::uint32_t index = 0;
    {
        auto state = state_.lock();
        changed_.wait(state.lock(), [&state] { return state->closed || !state->free.empty(); });
        if (state->closed) {
            return std::nullopt;
        }
        index = state->free.back();
        state->free.pop_back();
    }
    // The kernel must find all pages that a request can need. A process that is being killed cannot get
    // pages, and the kernel would fail the request.
    const auto bytes = slot(index);
    for (std::size_t at = 0; at < bytes.size() / 2; at += 4096) {
        std::atomic_ref(reinterpret_cast<std::uint32_t&>(bytes[at])).store(0, std::memory_order_relaxed);
    }
    return Lease(*this, index);
}

std::vector<RequestSlots::Lease> RequestSlots::take_unanswered() {
    std::vector<Lease> leases;
    for (std::uint32_t index = 0; index < count; ++index) {
        if (request_bytes(slot(index)) != 0) {
            leases.push_back(Lease(*this, index));
        }
    }
    return leases;
}

void RequestSlots::give_back(std::uint32_t index) {
    length_of(slot(index)).store(0, std::memory_order_release);
    state_.lock()->free.push_back(index);
    changed_.notify_one();
}

void RequestSlots::close() {
    state_.lock()->closed = true;
    changed_.notify_all();
}

}  // namespace copper
