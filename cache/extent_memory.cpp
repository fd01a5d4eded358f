#include "cache/extent_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace copper {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t region_pages = 4;
constexpr std::size_t region_bytes = region_pages * huge_page_bytes;

// The address range stays mapped. Using it again gets fresh memory.
void give_back(std::byte* begin, std::size_t bytes) {
    ::madvise(begin, bytes, MADV_DONTNEED);
}

}  // namespace

std::shared_ptr<ExtentMemory> ExtentMemory::make() {
    static_assert(page_extents * extent_bytes == huge_page_bytes);
    return std::shared_ptr<ExtentMemory>(new ExtentMemory);
}

ExtentMemory::~ExtentMemory() {
    for (const auto region : state_.lock()->regions) {
        ::munmap(region.data(), region.size());
    }
}

void ExtentMemory::add_region(State& state) {
    // A huge page starts at a multiple of its size. The part in front of it is never touched and takes no
    // memory.
    const std::size_t bytes = region_bytes + huge_page_bytes;
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        throw std::bad_alloc();
    }
    state.regions.emplace_back(static_cast<std::byte*>(mapped), bytes);
    void* aligned = mapped;
    std::size_t space = bytes;
    std::align(huge_page_bytes, region_bytes, aligned, space);
    ::madvise(aligned, region_bytes, MADV_HUGEPAGE);
    for (std::size_t page = region_pages; page > 0; --page) {
        state.given_back.push_back(state.pages.size());
        state.pages.push_back(
            {.begin = static_cast<std::byte*>(aligned) + (page - 1) * huge_page_bytes, .used = {}});
    }
}

// Prefers a page whose other extent is in use, so that whole pages become free. Removes the page from its
// list.
std::size_t ExtentMemory::page_with_room(State& state) {
    const auto pop_back = [](auto& list) {
        const std::size_t page = list.back();
        list.pop_back();
        return page;
    };
    if (!state.half_spare.empty()) {
        return pop_back(state.half_spare);
    }
    if (!state.spare.empty()) {
        return pop_back(state.spare);
    }
    if (!state.half_given_back.empty()) {
        return state.half_given_back.extract(state.half_given_back.begin()).value();
    }
    if (state.given_back.empty()) {
        add_region(state);
    }
    return pop_back(state.given_back);
}

ExtentMemory::Extent ExtentMemory::take(State& state) {
    const std::size_t number = page_with_room(state);
    Page& page = state.pages[number];
    const Extent extent{.page = number, .half = page.used[0] ? std::size_t{1} : 0};
    page.used[extent.half] = true;
    if (!page.used[1 - extent.half]) {
        state.half_spare.push_back(number);
    }
    return extent;
}

void ExtentMemory::take_back(State& state, Extent extent) {
    Page& page = state.pages[extent.page];
    page.used[extent.half] = false;
    if (page.used[1 - extent.half]) {
        state.half_spare.push_back(extent.page);
    } else if (state.half_given_back.erase(extent.page) != 0) {
        give_back(page.begin, huge_page_bytes);
        state.given_back.push_back(extent.page);
    } else {
        std::erase(state.half_spare, extent.page);
        state.spare.push_back(extent.page);
    }
    shrink(state);
}

void ExtentMemory::shrink(State& state) {
    while (state.spare_extents() * extent_bytes > spare_bytes_max) {
        if (!state.spare.empty()) {
            give_back(state.pages[state.spare.front()].begin, huge_page_bytes);
            state.given_back.push_back(state.spare.front());
            state.spare.pop_front();
        } else {
            // This splits a huge page, so it happens only if all free extents are in half-used pages.
            const Page& page = state.pages[state.half_spare.front()];
            give_back(page.begin + (page.used[0] ? extent_bytes : 0), extent_bytes);
            state.half_given_back.insert(state.half_spare.front());
            state.half_spare.erase(state.half_spare.begin());
        }
    }
}

std::shared_ptr<std::byte[]> ExtentMemory::allocate(std::size_t size) {
    if (size != extent_bytes) {
        return std::make_shared_for_overwrite<std::byte[]>(size);
    }
    Extent extent;
    std::byte* bytes = nullptr;
    {
        auto state = state_.lock();
        extent = take(*state);
        bytes = state->pages[extent.page].begin + extent.half * extent_bytes;
    }
    return {bytes,
            [self = shared_from_this(), extent](std::byte*) { take_back(*self->state_.lock(), extent); }};
}

}  // namespace copper
