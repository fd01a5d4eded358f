// The requests that were taken from the kernel and not answered yet, in memory that outlives the process.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/guarded.hpp"

namespace copper {

// The kernel copies each request directly into a slot. The answer frees the slot. So whenever the process is
// killed, each request that the kernel waits for is in a slot. A request's own length, its first field
// (struct fuse_in_header), tells a slot in use from a free one. At worst a request is answered twice, and the
// kernel refuses the second answer. Thread-safe.
class RequestSlots {
  public:
    // Requests at a time; further ones wait in the kernel. Each takes a page of memory or two.
    static constexpr std::size_t count = 4096;
    // Only a long list of inodes to forget needs more.
    static constexpr std::size_t slot_bytes = 16U << 10;
    static constexpr std::size_t memory_bytes = count * slot_bytes;

    // A slot in use, freed by the destructor.
    class Lease {
      public:
        Lease() = default;
        Lease(Lease&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)), index_(other.index_) {}
        Lease& operator=(Lease&& other) noexcept {
            std::swap(slots_, other.slots_);
            std::swap(index_, other.index_);
            return *this;
        }
        ~Lease();
        std::span<std::byte> bytes() const { return slots_->slot(index_); }
        bool is_empty() const { return slots_ == nullptr; }

      private:
        friend class RequestSlots;
        Lease(RequestSlots& slots, std::uint32_t index) : slots_(&slots), index_(index) {}
        RequestSlots* slots_ = nullptr;
        std::uint32_t index_ = 0;
    };

    // `memory`: zeros, or that of another process.
    explicit RequestSlots(std::span<std::byte> memory);

    // Waits for a free slot; nothing after close(). A slot counts as empty until something is stored in it.
    std::optional<Lease> take();
    void close();

    // The requests that the previous process left unanswered. Call it once, before take().
    std::vector<Lease> take_unanswered();

  private:
    std::span<std::byte> slot(std::uint32_t index) const {
        return memory_.subspan(index * slot_bytes, slot_bytes);
    }
    void give_back(std::uint32_t index);

    const std::span<std::byte> memory_;
    struct State {
        std::vector<std::uint32_t> free;
        bool closed = false;
    };
    Guarded<State> state_;
    std::condition_variable changed_;
};

// The size of the request in a slot; 0: none.
std::size_t request_bytes(std::span<const std::byte> slot);
bool is_init(std::span<const std::byte> request);
// For INTERRUPT: the number of the request that is meant.
std::optional<std::uint64_t> interrupted_by(std::span<const std::byte> request);

// Who waits for an answer, and to which request. The kernel numbers the requests of a connection.
struct Asker {
    std::uint64_t request = 0;
    pid_t thread = 0;  // in the daemon's pid namespace; 0: in none of its
};
Asker asker_of(std::span<const std::byte> request);

}  // namespace copper
