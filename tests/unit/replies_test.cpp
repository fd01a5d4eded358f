#include "daemon/replies.hpp"

#include <gtest/gtest.h>

#include "node_answer.hpp"

namespace copper {
namespace {

using nlohmann::json;
using Silent = std::map<std::uint32_t, std::string>;

Replies replies_of_rank(std::uint32_t rank, Replies::NameOf name_of) {
    return {"42", {.rank = rank, .nodes = 4}, std::move(name_of)};
}

std::string host_of(Rank rank) {
    return "cn" + std::to_string(rank.value);
}

TEST(Replies, NameTheNodesThatDidNotAnswer) {
    const auto reply = replies_of_rank(0, host_of)
                           .of_each({{.rank = Rank{0}, .text = R"({"state":"serving"})"},
                                     {.rank = Rank{2}, .text = "no JSON"}});
    EXPECT_EQ("42", reply.job);
    EXPECT_EQ(4U, reply.nodes);
    ASSERT_EQ(2U, reply.parts.size());
    EXPECT_EQ((json{{"state", "serving"}}), reply.parts[0].body);
    EXPECT_EQ(2U, reply.parts[1].rank);
    EXPECT_EQ(json::object(), reply.parts[1].body);
    EXPECT_EQ((Silent{{1, "cn1"}, {3, "cn3"}}), reply.silent);
}

TEST(Replies, OfASuccessorAreOfItsOldRankAlone) {
    const auto reply = replies_of_rank(3, nullptr).of_each({{.rank = Rank{0}, .text = "{}"}});
    ASSERT_EQ(1U, reply.parts.size());
    EXPECT_EQ(3U, reply.parts[0].rank);
    EXPECT_TRUE(reply.silent.empty());
}

TEST(Replies, OfASumNameWhoIsNotInIt) {
    const Answer::Part two{.rank = Rank{1}, .text = test::node_answer(1, 0).dump(), .with = {Rank{2}}};
    const auto reply = replies_of_rank(0, host_of).of_sum({two}, "");
    ASSERT_EQ(1U, reply.parts.size()) << reply.error;
    EXPECT_EQ((json{0, 3}), reply.parts[0].body.at("lost"));
    EXPECT_EQ((Silent{{0, "cn0"}, {3, "cn3"}}), reply.silent);
}

}  // namespace
}  // namespace copper
