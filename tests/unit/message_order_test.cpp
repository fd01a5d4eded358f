#include "fabric/message_order.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr Rank self{1}, sender{0}, other{2};
constexpr TimePoint start{1h};

class Order : public testing::Test {
  protected:
    std::vector<std::byte> message(std::uint64_t number, Rank from = sender) const {
        const Frame frame{.header = copy_to_blob(std::as_bytes(std::span(&number, 1))), .body = {}};
        std::vector<std::byte> sealed;
        sealer.seal({.from = from, .to = self, .number = number}, {&frame, 1}, sealed);
        return sealed;
    }
    bool add(const std::vector<std::byte>& bytes, std::uint64_t tag, Rank from = sender,
             TimePoint now = start) {
        return order.add(from, tag, bytes, now, [this](MessageOrder::Message taken_now) {
            std::uint64_t number = 0;
            MessageReader reader(taken_now);
            std::memcpy(&number, reader.next()->header.data(), sizeof number);
            taken.push_back(number);
        });
    }
    bool add(std::uint64_t number, Rank from = sender) {
        return add(message(number, from), number % message_tags, from);
    }

    const Sealer sealer{std::nullopt};
    MessageOrder order{self, 3, sealer};
    std::vector<std::uint64_t> taken;
};

TEST_F(Order, HoldsForShuffledMessagesAlsoWhereTagsBeginAnew) {
    constexpr std::uint64_t count = 2 * message_tags + 100;
    constexpr std::size_t at_once = 17;
    std::mt19937 random(1);
    std::vector<std::uint64_t> under_way;
    for (std::uint64_t next = 0; next < count || !under_way.empty();) {
        if (next < count && under_way.size() < at_once) {
            under_way.push_back(next++);
            continue;
        }
        std::swap(under_way[random() % under_way.size()], under_way.back());
        ASSERT_TRUE(add(under_way.back()));
        under_way.pop_back();
    }
    ASSERT_EQ(taken.size(), count);
    for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(taken[i], i);
    }
    EXPECT_TRUE(order.waiting_since(start + 1h).empty());
}

TEST_F(Order, IsOfEachSenderForItself) {
    EXPECT_TRUE(add(1));
    EXPECT_TRUE(add(0, other));
    EXPECT_EQ(taken, std::vector<std::uint64_t>{0});
    EXPECT_TRUE(add(0));
    EXPECT_EQ(taken, (std::vector<std::uint64_t>{0, 0, 1}));
}

TEST_F(Order, WhatIsRefusedLeavesNoTrace) {
    EXPECT_FALSE(add(message(0, other), 0)) << "of another link";
    EXPECT_FALSE(add(message(1), 0)) << "another number";
    EXPECT_FALSE(add({}, 0));
    EXPECT_FALSE(add(message(MessageOrder::early_messages_max), MessageOrder::early_messages_max))
        << "too far ahead";
    EXPECT_TRUE(add(0));
    EXPECT_FALSE(add(message(0), 0)) << "once more";
    EXPECT_TRUE(add(1));
    EXPECT_EQ(taken, (std::vector<std::uint64_t>{0, 1}));
}

TEST_F(Order, AMessageThatDoesNotComeIsMissed) {
    EXPECT_TRUE(add(message(1), 1, sender, start));
    EXPECT_TRUE(add(message(2), 2, sender, start + 10s));
    EXPECT_TRUE(add(message(2, other), 2, other, start + 5s));
    EXPECT_TRUE(order.waiting_since(start).empty());
    EXPECT_EQ(order.waiting_since(start + 1s), std::vector{sender});
    EXPECT_EQ(order.waiting_since(start + 6s), (std::vector{sender, other}));
    order.forget(sender);
    EXPECT_EQ(order.waiting_since(start + 6s), std::vector{other});
    EXPECT_TRUE(taken.empty());
}

}  // namespace
}  // namespace copper
