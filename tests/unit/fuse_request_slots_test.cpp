#include "fuse/request_slots.hpp"

#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/mman.h>

#include <future>

namespace copper {
namespace {

class RequestSlotsTest : public testing::Test {
  protected:
    RequestSlotsTest()
        : memory_(static_cast<std::byte*>(::mmap(nullptr, RequestSlots::memory_bytes, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
                  RequestSlots::memory_bytes) {}
    ~RequestSlotsTest() override { ::munmap(memory_.data(), memory_.size()); }

    static void store(const RequestSlots::Lease& lease, std::uint32_t opcode, std::uint64_t unique) {
        auto* header = reinterpret_cast<fuse_in_header*>(lease.bytes().data());
        *header = {};
        header->len = sizeof(fuse_in_header);
        header->opcode = opcode;
        header->unique = unique;
    }
    static std::uint64_t unique_of(const RequestSlots::Lease& lease) {
        return reinterpret_cast<const fuse_in_header*>(lease.bytes().data())->unique;
    }

    const std::span<std::byte> memory_;
};

TEST_F(RequestSlotsTest, WhatIsUnansweredIsThereForTheNextProcess) {
    auto* killed = new RequestSlots(memory_);  // which ends without a word: its leases are never given back
    auto answered = killed->take();
    store(*answered, FUSE_LOOKUP, 1);
    auto* unanswered = new RequestSlots::Lease(std::move(*killed->take()));
    store(*unanswered, FUSE_READ, 2);
    auto* waiting = new RequestSlots::Lease(std::move(*killed->take()));
    EXPECT_EQ(request_bytes(waiting->bytes()), 0U);
    answered.reset();

    RequestSlots next(memory_);
    {
        const auto left = next.take_unanswered();
        ASSERT_EQ(left.size(), 1U);
        EXPECT_EQ(unique_of(left[0]), 2U);
        EXPECT_FALSE(is_init(left[0].bytes()));
        for (std::size_t i = 1; i < RequestSlots::count; ++i) {
            auto* lease = new RequestSlots::Lease(std::move(*next.take()));
            ASSERT_NE(lease->bytes().data(), left[0].bytes().data());
        }
    }
    EXPECT_EQ(RequestSlots(memory_).take_unanswered().size(), 0U);
}

TEST_F(RequestSlotsTest, WaitsForAFreeOne) {
    RequestSlots slots(memory_);
    std::vector<RequestSlots::Lease> all;
    for (std::size_t i = 0; i < RequestSlots::count; ++i) {
        all.push_back(std::move(*slots.take()));
    }
    auto next = std::async(std::launch::async, [&slots] { return slots.take().has_value(); });
    EXPECT_EQ(next.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    all.pop_back();
    EXPECT_TRUE(next.get());
}

TEST_F(RequestSlotsTest, NobodyWaitsWhenItIsClosed) {
    RequestSlots slots(memory_);
    std::vector<RequestSlots::Lease> all;
    for (std::size_t i = 0; i < RequestSlots::count; ++i) {
        all.push_back(std::move(*slots.take()));
    }
    auto next = std::async(std::launch::async, [&slots] { return slots.take().has_value(); });
    slots.close();
    EXPECT_FALSE(next.get());
    EXPECT_FALSE(slots.take());
}

TEST_F(RequestSlotsTest, RefusesALengthThatCannotBe) {
    RequestSlots slots(memory_);
    const auto lease = slots.take();
    store(*lease, FUSE_LOOKUP, 1);
    auto* header = reinterpret_cast<fuse_in_header*>(lease->bytes().data());
    header->len = RequestSlots::slot_bytes + 1;
    EXPECT_EQ(request_bytes(lease->bytes()), 0U);
    header->len = sizeof(fuse_in_header) - 1;
    EXPECT_EQ(request_bytes(lease->bytes()), 0U);
}

}  // namespace
}  // namespace copper
