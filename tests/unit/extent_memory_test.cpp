#include "cache/extent_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>

namespace copper {
namespace {

using Memory = std::shared_ptr<std::byte[]>;

std::vector<Memory> touched_extents(ExtentMemory& memory, std::size_t count) {
    std::vector<Memory> extents;
    for (std::size_t i = 0; i < count; ++i) {
        extents.push_back(memory.allocate(extent_bytes));
        std::memset(extents.back().get(), static_cast<int>(i + 1), extent_bytes);
    }
    return extents;
}

std::vector<std::byte*> addresses_of(const std::vector<Memory>& extents) {
    std::vector<std::byte*> addresses;
    for (const Memory& extent : extents) {
        addresses.push_back(extent.get());
    }
    return addresses;
}

// What the kernel has given to these extents.
std::size_t resident_bytes(const std::vector<std::byte*>& extents) {
    const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages(extent_bytes / page_bytes);
    std::size_t resident = 0;
    for (std::byte* extent : extents) {
        EXPECT_EQ(::mincore(extent, extent_bytes, pages.data()), 0);
        resident += page_bytes * static_cast<std::size_t>(std::count_if(
                                     pages.begin(), pages.end(), [](auto page) { return (page & 1U) != 0; }));
    }
    return resident;
}

// Faster, where only the first byte of each extent was touched.
std::size_t resident_extents(const std::set<std::byte*>& extents) {
    return static_cast<std::size_t>(std::count_if(extents.begin(), extents.end(), [](std::byte* extent) {
        unsigned char page = 0;
        EXPECT_EQ(::mincore(extent, 1, &page), 0);
        return (page & 1U) != 0;
    }));
}

// The kernel may join small pages to a huge one at any time, and the free half would count again.
struct WithoutHugePages {
    WithoutHugePages() { EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); }
    ~WithoutHugePages() { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

TEST(ExtentMemory, GivesBackWhatNobodyUses) {
    const auto memory = ExtentMemory::make();
    auto extents = touched_extents(*memory, 128);
    const auto addresses = addresses_of(extents);
    EXPECT_EQ(resident_bytes(addresses), 128 * extent_bytes);
    extents.clear();
    EXPECT_EQ(resident_bytes(addresses), ExtentMemory::spare_bytes_max);
}

TEST(ExtentMemory, GivesBackWhatLiesBetweenOthers) {
    const auto memory = ExtentMemory::make();
    auto extents = touched_extents(*memory, 128);
    const auto addresses = addresses_of(extents);
    for (std::size_t i = 0; i < extents.size(); i += 2) {
        extents[i].reset();
    }
    EXPECT_EQ(resident_bytes(addresses), 64 * extent_bytes + ExtentMemory::spare_bytes_max);
    for (std::size_t i = 1; i < extents.size(); i += 2) {
        EXPECT_EQ(extents[i][extent_bytes - 1], static_cast<std::byte>(i + 1));
    }
    extents.clear();
    EXPECT_EQ(resident_bytes(addresses), ExtentMemory::spare_bytes_max);
}

TEST(ExtentMemory, AStreamUsesTheSameMemoryAgain) {
    const auto memory = ExtentMemory::make();
    auto extents = touched_extents(*memory, 32);
    auto addresses = addresses_of(extents);
    std::sort(addresses.begin(), addresses.end());
    for (std::size_t i = 0; i < 1000; ++i) {
        Memory& oldest = extents[i % extents.size()];
        oldest.reset();
        EXPECT_EQ(resident_bytes(addresses),
                  32 * extent_bytes);  // nothing goes back that is used the next moment
        oldest = memory->allocate(extent_bytes);
        EXPECT_TRUE(std::binary_search(addresses.begin(), addresses.end(), oldest.get()));
    }
}

TEST(ExtentMemory, HoldsNoMoreThanIsInUseAndSpareWhateverTheOrder) {
    const WithoutHugePages small_pages;
    std::mt19937 random(1);
    const auto memory = ExtentMemory::make();
    std::vector<Memory> extents;
    std::vector<std::byte> stamps;
    std::set<std::byte*> addresses;  // that extents have had
    std::size_t most = 0;
    for (int step = 0; step < 20000; ++step) {
        const bool grows = random() % 200 >= extents.size();
        if (grows) {
            extents.push_back(memory->allocate(extent_bytes));
            stamps.push_back(static_cast<std::byte>(random()));
            extents.back()[0] = stamps.back();
            addresses.insert(extents.back().get());
        } else {
            const std::size_t at = random() % extents.size();
            ASSERT_EQ(extents[at][0], stamps[at]);  // nobody else got it, and the kernel neither
            std::swap(extents[at], extents.back());
            std::swap(stamps[at], stamps.back());
            extents.pop_back();
            stamps.pop_back();
        }
        most = std::max(most, extents.size());
        const std::size_t held = resident_extents(addresses) * extent_bytes;
        ASSERT_GE(held, extents.size() * extent_bytes);
        ASSERT_LE(held, extents.size() * extent_bytes + ExtentMemory::spare_bytes_max);
    }
    EXPECT_GT(most, 64U);
}

TEST(ExtentMemory, BytesOfOtherSizesComeFromTheHeap) {
    const auto memory = ExtentMemory::make();
    const auto bytes = memory->allocate(extent_bytes - 1);
    EXPECT_NE(reinterpret_cast<std::uintptr_t>(bytes.get()) % extent_bytes, 0U) << "extents are aligned";
}

}  // namespace
}  // namespace copper
