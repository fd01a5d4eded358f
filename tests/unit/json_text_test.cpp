#include "base/json_text.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

TEST(JsonText, DepthIsThatOfArraysAndObjects) {
    EXPECT_EQ(json_depth(""), 0U);
    EXPECT_EQ(json_depth("17"), 0U);
    EXPECT_EQ(json_depth("[]"), 1U);
    EXPECT_EQ(json_depth("[{},[{}],1]"), 3U);
    EXPECT_EQ(json_depth(R"(["[[[\"[[[\\", "]", [])"), 2U) << "strings aside";
    EXPECT_EQ(json_depth("]]][["), 2U);
}

TEST(JsonText, WhatNestsTooDeepIsRefused) {
    const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    EXPECT_NO_THROW(parse_json(nested(json_depth_max)));
    EXPECT_THROW(parse_json(nested(json_depth_max + 1)), std::exception);
    EXPECT_THROW(parse_json("["), std::exception);
}

TEST(JsonText, WholeNumbersOnly) {
    EXPECT_EQ(whole_number<std::uint32_t>(4294967295), 4294967295U);
    EXPECT_EQ(whole_number<std::int32_t>(-2147483648LL), -2147483648LL);
    EXPECT_EQ(whole_number<std::uint64_t>(~0ULL), ~0ULL);
    EXPECT_THROW(whole_number<std::uint32_t>(4294967296), std::exception);
    EXPECT_THROW(whole_number<std::uint32_t>(-1), std::exception);
    EXPECT_THROW(whole_number<std::int64_t>(~0ULL), std::exception);
    for (const char* text : {"1.0", "1e300", "true", "null", "\"1\"", "[1]"}) {
        EXPECT_THROW(whole_number<std::int64_t>(parse_json(text)), std::exception) << text;
    }
}

}  // namespace
}  // namespace copper
