#include "cache/extent_memory.hpp"

#include <sys/mman.h>

#include <new>

#include "cache/object.hpp"

namespace copper {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t region_bytes = 4 * huge_page_bytes;
static_assert(region_bytes % extent_bytes == 0);

}  // namespace

std::shared_ptr<ExtentMemory> ExtentMemory::make() {
    return std::shared_ptr<ExtentMemory>(new ExtentMemory);
}

ExtentMemory::~ExtentMemory() {
    for (const auto region : state_.lock()->regions) {
        ::munmap(region.data(), region.size());
    }
}

void ExtentMemory::add_region(State& state) {
    // A huge page starts at a multiple of its size. The part in front is never touched, and takes no memory.
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
    for (std::size_t offset = region_bytes; offset > 0; offset -= extent_bytes) {
        state.free.push_back(static_cast<std::byte*>(aligned) + offset - extent_bytes);
    }
}

std::shared_ptr<std::byte[]> ExtentMemory::allocate(std::size_t size) {
    if (size != extent_bytes) {
        return std::make_shared_for_overwrite<std::byte[]>(size);
    }
    std::byte* bytes = nullptr;
    {
        auto state = state_.lock();
        if (state->free.empty()) {
            add_region(*state);
        }
        bytes = state->free.back();
        state->free.pop_back();
    }
    return {bytes,
            [self = shared_from_this()](std::byte* given) { self->state_.lock()->free.push_back(given); }};
}

std::size_t ExtentMemory::bytes_reserved() {
    return state_.lock()->regions.size() * region_bytes;
}

}  // namespace copper
