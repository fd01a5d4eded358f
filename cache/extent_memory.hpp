// Memory for the bytes of whole extents.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// An extent passes through a node once. Fresh memory costs a page fault per 4 KiB, which takes longer than
// receiving the bytes. So extents lie in huge pages where the kernel has them
// (Documentation/admin-guide/mm/transhuge.rst), two per page, and a stream reuses its memory. Free memory
// beyond spare_bytes_max goes back to the kernel, to make room for other objects in the cache. Allocations of
// other sizes come from the heap.
//
// Thread-safe. Memory that was handed out keeps this object alive.
class ExtentMemory : public std::enable_shared_from_this<ExtentMemory> {
  public:
    static constexpr std::size_t spare_bytes_max = 16 * extent_bytes;

    static std::shared_ptr<ExtentMemory> make();
    ExtentMemory(const ExtentMemory&) = delete;
    ExtentMemory& operator=(const ExtentMemory&) = delete;
    ~ExtentMemory();

    // `size` bytes, uninitialised.
    std::shared_ptr<std::byte[]> allocate(std::size_t size);

  private:
    ExtentMemory() = default;

    static constexpr std::size_t page_extents = 2;
    struct Page {
        std::byte* begin = nullptr;
        bool used[page_extents] = {};
    };
    struct Extent {
        std::size_t page = 0;
        std::size_t half = 0;
    };
    // A page is in one of these lists, unless both of its extents are in use.
    struct State {
        std::vector<std::span<std::byte>> regions;
        std::vector<Page> pages;
        std::vector<std::size_t> half_spare;  // one extent is in use, the other is free and held
        std::deque<std::size_t> spare;        // both are free and held; the most recently used is at the back
        std::set<std::size_t> half_given_back;  // one extent is in use, the kernel has the other
        std::vector<std::size_t> given_back;    // the kernel has both

        std::size_t spare_extents() const { return half_spare.size() + page_extents * spare.size(); }
    };
    static void add_region(State& state);
    static std::size_t page_with_room(State& state);
    static Extent take(State& state);
    static void take_back(State& state, Extent extent);
    static void shrink(State& state);

    Guarded<State> state_;
};

}  // namespace copper
