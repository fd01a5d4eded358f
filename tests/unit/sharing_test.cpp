#include "collectives/sharing.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using Verdict = Sharing::Verdict;

const std::string tree = "/data";

std::string shard(std::uint32_t number) {
    return tree + "/shard" + std::to_string(number);
}

void read(Sharing& sharing, const std::string& file, Rank node, int extents) {
    for (int i = 0; i < extents; ++i) {
        sharing.note(tree, file, node);
    }
}

TEST(Sharing, AFileIsSharedWhenEnoughNodesAsk) {
    for (const auto& [nodes, enough] : {std::pair{2U, 2U}, {4U, 2U}, {64U, 8U}, {8192U, 90U}}) {
        Sharing sharing({.nodes = nodes});
        for (std::uint32_t node = 0; node < enough; ++node) {
            EXPECT_EQ(sharing.verdict(tree, shard(0)), Verdict::unknown) << node << " of " << nodes;
            sharing.note(tree, shard(0), Rank{node});
        }
        EXPECT_EQ(sharing.verdict(tree, shard(0)), Verdict::shared) << nodes;
    }
}

TEST(Sharing, FilesOfOneNodeEachAreItsOwn) {
    Sharing sharing({.nodes = 4});
    read(sharing, shard(0), Rank{0}, 8);
    EXPECT_EQ(sharing.verdict(tree, shard(0)), Verdict::unknown) << "others may come to it";
    read(sharing, shard(1), Rank{1}, 8);
    for (std::uint32_t file = 0; file < 4; ++file) {
        EXPECT_EQ(sharing.verdict(tree, shard(file)), Verdict::own) << file;
    }
    EXPECT_EQ(sharing.verdict("/elsewhere", "/elsewhere/file"), Verdict::unknown);
}

TEST(Sharing, OneNodeThatReadsAheadOfTheOthersIsNoSign) {
    Sharing sharing({.nodes = 4});
    for (std::uint32_t file = 0; file < 10; ++file) {
        read(sharing, shard(file), Rank{0}, 100);
        EXPECT_EQ(sharing.verdict(tree, shard(file)), Verdict::unknown);
    }
}

TEST(Sharing, ASecondNodeAtOneFileEndsItForAll) {
    Sharing sharing({.nodes = 100});
    read(sharing, shard(0), Rank{0}, 8);
    read(sharing, shard(1), Rank{1}, 8);
    ASSERT_EQ(sharing.verdict(tree, shard(0)), Verdict::own);
    sharing.note(tree, shard(0), Rank{2});
    EXPECT_EQ(sharing.verdict(tree, shard(0)), Verdict::unknown);
    EXPECT_EQ(sharing.verdict(tree, shard(1)), Verdict::unknown);
}

TEST(Sharing, ForgettingCostsTheVerdictOnly) {
    Sharing sharing({.nodes = 4, .directories_max = 2, .files_per_directory_max = 2});
    for (std::uint32_t i = 0; i < 100; ++i) {
        const std::string directory = "/d" + std::to_string(i % 5);
        sharing.note(directory, directory + "/f" + std::to_string(i), Rank{i % 4});
    }
    EXPECT_EQ(sharing.verdict("/d0", "/d0/f0"), Verdict::unknown);
}

}  // namespace
}  // namespace copper
