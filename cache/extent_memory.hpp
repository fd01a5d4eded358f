// Memory for the bytes of whole extents.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cache/guarded.hpp"

namespace copper {

// An extent passes through a node once, so memory that is new to the process would cost a page fault for
// every 4 KiB of it, which takes longer than to receive the bytes. Here it comes in huge pages where the
// kernel has them (Documentation/admin-guide/mm/transhuge.rst), and is used again: what is reserved is as
// much as was ever in use at a time. Bytes of other sizes come from the heap.
//
// Thread-safe. What it gave out keeps it alive.
class ExtentMemory : public std::enable_shared_from_this<ExtentMemory> {
  public:
    static std::shared_ptr<ExtentMemory> make();
    ExtentMemory(const ExtentMemory&) = delete;
    ExtentMemory& operator=(const ExtentMemory&) = delete;
    ~ExtentMemory();

    // `size` bytes, uninitialised.
    std::shared_ptr<std::byte[]> allocate(std::size_t size);

    std::size_t bytes_reserved();

  private:
    ExtentMemory() = default;

    struct State {
        std::vector<std::span<std::byte>> regions;
        std::vector<std::byte*>
            free;  // of extent_bytes each; the last one used is the first to be used again
    };
    static void add_region(State& state);

    Guarded<State> state_;
};

}  // namespace copper
