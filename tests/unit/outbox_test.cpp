#include "fabric/outbox.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

constexpr Rank to{1}, another{2};

Frame frame(Lane lane, std::size_t body_bytes, std::size_t header_bytes = 10) {
    const auto zeros = [](std::size_t bytes) { return copy_to_blob(std::vector<std::byte>(bytes)); };
    return {.header = zeros(header_bytes), .body = zeros(body_bytes), .lane = lane};
}

std::size_t bytes_of(const std::vector<Frame>& frames) {
    std::size_t bytes = 0;
    for (const Frame& one : frames) {
        bytes += copper::bytes_of(one);
    }
    return bytes;
}

TEST(Outbox, EagerFramesThatWaitGoTogetherAndFitIntoAMessage) {
    Outbox outbox({}, 3);
    ASSERT_TRUE(outbox.push(to, frame(Lane::eager, 100)));
    const auto first = outbox.next(to, Lane::eager);
    EXPECT_EQ(first.size(), 1U);
    std::size_t waiting = 0;
    for (std::size_t bytes :
         {std::size_t{0}, std::size_t{5000}, eager_body_bytes_max, std::size_t{7}, std::size_t{8}}) {
        ASSERT_TRUE(outbox.push(to, frame(Lane::eager, bytes)));
        ++waiting;
    }
    EXPECT_TRUE(outbox.next(to, Lane::eager).empty()) << "one message at a time";
    outbox.sent(to, Lane::eager, bytes_of(first));
    while (waiting > 0) {
        const auto frames = outbox.next(to, Lane::eager);
        ASSERT_FALSE(frames.empty());
        std::vector<std::byte> message;
        Sealer(std::nullopt).seal({.from = Rank{0}, .to = to, .number = 0}, frames, message);
        EXPECT_LE(message.size(), message_bytes_max);
        waiting -= frames.size();
        outbox.sent(to, Lane::eager, bytes_of(frames));
    }
    EXPECT_TRUE(outbox.next(to, Lane::eager).empty());
    EXPECT_EQ(outbox.backlog_bytes(to), 0U);
}

TEST(Outbox, BulkFramesGoAloneAndAFewAtATime) {
    Outbox outbox({.bulk_in_flight_max = 2}, 3);
    for (std::size_t i = 1; i <= 3; ++i) {
        ASSERT_TRUE(outbox.push(to, frame(Lane::bulk, i * 100000)));
    }
    ASSERT_TRUE(outbox.push(to, frame(Lane::eager, 1)));
    const auto first = outbox.next(to, Lane::bulk);
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first.front().body.size, 100000U);
    EXPECT_EQ(outbox.next(to, Lane::bulk).front().body.size, 200000U);
    EXPECT_TRUE(outbox.next(to, Lane::bulk).empty());
    EXPECT_EQ(outbox.next(to, Lane::eager).size(), 1U) << "a small one overtakes them";
    outbox.sent(to, Lane::bulk, bytes_of(first));
    EXPECT_EQ(outbox.next(to, Lane::bulk).front().body.size, 300000U);
}

TEST(Outbox, TheBacklogIsWhatWaitsAndWhatIsInFlight) {
    Outbox outbox({}, 3);
    ASSERT_TRUE(outbox.push(to, frame(Lane::bulk, 1000)));
    ASSERT_TRUE(outbox.push(to, frame(Lane::eager, 100)));
    ASSERT_TRUE(outbox.push(another, frame(Lane::eager, 10)));
    EXPECT_EQ(outbox.backlog_bytes(to), 1120U);
    EXPECT_EQ(outbox.backlog_bytes(), 1140U);
    const auto frames = outbox.next(to, Lane::bulk);
    EXPECT_EQ(outbox.backlog_bytes(to), 1120U);
    outbox.sent(to, Lane::bulk, bytes_of(frames));
    EXPECT_EQ(outbox.backlog_bytes(to), 110U);
    outbox.lose(to);
    EXPECT_EQ(outbox.backlog_bytes(to), 0U);
    EXPECT_EQ(outbox.backlog_bytes(), 20U);
    EXPECT_FALSE(outbox.push(to, frame(Lane::eager, 1)));
    EXPECT_TRUE(outbox.next(to, Lane::eager).empty());
    EXPECT_TRUE(outbox.is_lost(to));
    EXPECT_FALSE(outbox.is_lost(another));
}

TEST(Outbox, WhatIsTooMuchOrTooLargeIsNotTaken) {
    Outbox outbox({.frames_max = 2, .bytes_max = 3000}, 3);
    EXPECT_TRUE(outbox.push(to, frame(Lane::eager, 1)));
    EXPECT_TRUE(outbox.push(to, frame(Lane::eager, 1)));
    EXPECT_FALSE(outbox.push(to, frame(Lane::eager, 1))) << "frames";
    EXPECT_TRUE(outbox.push(to, frame(Lane::bulk, 2900)));
    EXPECT_FALSE(outbox.push(to, frame(Lane::bulk, 100))) << "bytes";
    EXPECT_TRUE(outbox.push(another, frame(Lane::bulk, 2900)));
    const std::uint64_t before = outbox.backlog_bytes();
    Outbox roomy({}, 3);
    EXPECT_TRUE(roomy.push(to, frame(Lane::eager, eager_body_bytes_max, header_bytes_max)));
    EXPECT_FALSE(roomy.push(to, frame(Lane::eager, eager_body_bytes_max + 1)));
    EXPECT_FALSE(roomy.push(to, frame(Lane::eager, 1, header_bytes_max + 1)));
    EXPECT_TRUE(roomy.push(to, frame(Lane::bulk, body_bytes_max)));
    EXPECT_FALSE(roomy.push(to, frame(Lane::bulk, body_bytes_max + 1)));
    EXPECT_EQ(outbox.backlog_bytes(), before);
}

}  // namespace
}  // namespace copper
