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
    RequestSlots slots(memory_);
    auto answered = slots.take();
    store(*answered, FUSE_LOOKUP, 1);
    const auto unanswered = slots.take();
    store(*unanswered, FUSE_READ, 2);
    const auto waiting = slots.take();
    EXPECT_EQ(request_bytes(waiting->bytes()), 0U);
    answered.reset();

    // Killed now, the process would leave this.
    std::vector<std::byte> left(memory_.begin(), memory_.end());
    RequestSlots next(left);
    {
        const auto requests = next.take_unanswered();
        ASSERT_EQ(requests.size(), 1U);
        EXPECT_EQ(unique_of(requests[0]), 2U);
        EXPECT_FALSE(is_init(requests[0].bytes()));
        std::vector<RequestSlots::Lease> others;
        while (others.size() + 1 < RequestSlots::count) {
            others.push_back(std::move(*next.take()));
            ASSERT_NE(others.back().bytes().data(), requests[0].bytes().data());
        }
    }
    EXPECT_TRUE(RequestSlots(left).take_unanswered().empty());
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
