#include "collectives/sharing.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using Verdict = Sharing::Verdict;

ObjectKey large(std::uint32_t number) {
    return {ObjectKind::extent, "/data/shard" + std::to_string(number), 1};
}

ObjectKey small(std::uint32_t number) {
    return {ObjectKind::extent, "/data/" + std::to_string(number)};
}

void read(Sharing& sharing, const ObjectKey& key, Rank node, int extents) {
    for (int i = 0; i < extents; ++i) {
        sharing.note(key, node);
    }
}

// As their reader does; true if it pushed the file.
bool read_small(Sharing& sharing, std::uint32_t number, Rank node) {
    sharing.note(small(number), node);
    const bool pushed = sharing.verdict(small(number)) == Verdict::shared;
    if (pushed) {
        sharing.note_pushed(small(number));
    }
    return pushed;
}

TEST(Sharing, AFileIsSharedWhenEnoughNodesAsk) {
    for (const auto& [nodes, enough] : {std::pair{2U, 2U}, {4U, 2U}, {64U, 8U}, {8192U, 90U}}) {
        Sharing sharing({.nodes = nodes});
        for (std::uint32_t node = 0; node < enough; ++node) {
            EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown) << node << " of " << nodes;
            sharing.note(large(0), Rank{node});
        }
        EXPECT_EQ(sharing.verdict(large(0)), Verdict::shared) << nodes;
    }
}

TEST(Sharing, FilesOfOneNodeEachAreItsOwn) {
    Sharing sharing({.nodes = 4});
    read(sharing, large(0), Rank{0}, 8);
    EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown) << "others may come to it";
    read(sharing, large(1), Rank{1}, 8);
    for (std::uint32_t file = 0; file < 4; ++file) {
        EXPECT_EQ(sharing.verdict(large(file)), Verdict::own) << file;
    }
    EXPECT_EQ(sharing.verdict({ObjectKind::extent, "/elsewhere/file", 1}), Verdict::unknown);
    EXPECT_EQ(sharing.verdict(small(0)), Verdict::shared) << "small ones are judged by themselves";
}

TEST(Sharing, OneNodeThatReadsAheadOfTheOthersIsNoSign) {
    Sharing sharing({.nodes = 4});
    for (std::uint32_t file = 0; file < 10; ++file) {
        read(sharing, large(file), Rank{0}, 100);
        EXPECT_EQ(sharing.verdict(large(file)), Verdict::unknown);
    }
    std::uint32_t samples = 0;
    for (std::uint32_t file = 0; file < 2000; ++file) {
        samples += read_small(sharing, file, Rank{0}) ? 0 : 1;
    }
    EXPECT_GT(samples, 200U);
    EXPECT_LT(samples, 280U);
}

TEST(Sharing, ASecondNodeAtOneOfFewFilesEndsItForAll) {
    Sharing sharing({.nodes = 100});
    read(sharing, large(0), Rank{0}, 8);
    read(sharing, large(1), Rank{1}, 8);
    ASSERT_EQ(sharing.verdict(large(0)), Verdict::own);
    sharing.note(large(0), Rank{2});
    EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown);
    EXPECT_EQ(sharing.verdict(large(1)), Verdict::unknown);
}

TEST(Sharing, FewSmallFilesAreAllPushed) {
    Sharing sharing({.nodes = 4});
    for (std::uint32_t file = 0; file < 64; ++file) {
        EXPECT_TRUE(read_small(sharing, file, Rank{file % 4})) << file;
    }
}

// Nodes that read small files of their own.
struct SmallShards {
    static constexpr std::uint32_t nodes = 100;

    SmallShards() {
        while (sharing.verdict(small(next)) != Verdict::own && next < 1000) {
            pushed += read_small(sharing, next, Rank{next % nodes}) ? 1 : 0;
            ++next;
        }
    }

    Sharing sharing = Sharing({.nodes = nodes});
    std::uint32_t pushed = 0;
    std::uint32_t next = 0;
};

TEST(Sharing, SmallFilesOfOneNodeEachAreNoticed) {
    SmallShards job;
    EXPECT_GE(job.pushed, 64U);
    EXPECT_LE(job.pushed, 300U);
    for (std::uint32_t file = job.next; file < 5000; ++file) {
        job.sharing.note(small(file), Rank{file % SmallShards::nodes});
        ASSERT_EQ(job.sharing.verdict(small(file)), Verdict::own) << file;
    }
}

TEST(Sharing, ADirectoryIsTakenForOneLikeThoseBesideIt) {
    Sharing sharing({.nodes = 100});
    const auto file = [](const std::string& directory, std::uint32_t number) {
        return ObjectKey{ObjectKind::extent, directory + "/" + std::to_string(number)};
    };
    std::uint32_t pushed = 0;
    for (std::uint32_t number = 0; number < 2000; ++number) {
        const ObjectKey key = file("/data/" + std::to_string(number / 10), number);
        sharing.note(key, Rank{number % 100});
        if (sharing.verdict(key) == Verdict::shared) {
            sharing.note_pushed(key);
            ++pushed;
        }
    }
    EXPECT_GE(pushed, 256U);
    EXPECT_LE(pushed, 500U);
    EXPECT_EQ(sharing.verdict(file("/elsewhere/0", 0)), Verdict::shared);
    // Until more is known of it.
    for (std::uint32_t number = 0; number < 16; ++number) {
        EXPECT_EQ(sharing.verdict(file("/data/shared", number)), Verdict::own) << number;
        sharing.note(file("/data/shared", number), Rank{1});
        sharing.note(file("/data/shared", number), Rank{2});
    }
    std::uint32_t own = 0;
    std::uint32_t shared = 0;
    for (std::uint32_t number = 16; number < 116; ++number) {
        own += sharing.verdict(file("/data/shared", number)) == Verdict::own ? 1 : 0;
        shared += sharing.verdict(file("/data/shared", number)) == Verdict::shared ? 1 : 0;
    }
    EXPECT_EQ(own, 0U);
    EXPECT_GT(shared, 70U);
}

TEST(Sharing, ASmallFileThatSeveralWantIsAnException) {
    SmallShards job;
    const std::uint32_t index = job.next++;
    job.sharing.note(small(index), Rank{1});
    EXPECT_EQ(job.sharing.verdict(small(index)), Verdict::own);
    job.sharing.note(small(index), Rank{2});
    EXPECT_EQ(job.sharing.verdict(small(index)), Verdict::unknown);
    EXPECT_EQ(job.sharing.verdict(small(job.next)), Verdict::own) << "and changes nothing for others";
    for (std::uint32_t node = 3; node <= 10; ++node) {
        job.sharing.note(small(index), Rank{node});
    }
    EXPECT_EQ(job.sharing.verdict(small(index)), Verdict::shared) << "by enough to push it";
}

TEST(Sharing, SmallFilesThatOthersReadAfterAllAreNotLeftToThem) {
    SmallShards job;
    for (std::uint32_t i = 0; i < 8; ++i) {
        job.sharing.note(small(job.next + i), Rank{1});
        job.sharing.note(small(job.next + i), Rank{2});
    }
    EXPECT_EQ(job.sharing.verdict(small(5000)), Verdict::unknown) << "for those who ask";
}

TEST(Sharing, ManySmallFilesThatAllReadArePushed) {
    // All in the same order, the last node so many files after the first one.
    for (const std::uint32_t behind : {0U, 50U}) {
        Sharing sharing({.nodes = 4});
        std::uint32_t pushed = 0;
        for (std::uint32_t file = 0; file < 2000; ++file) {
            pushed += read_small(sharing, file, Rank{file % 3}) ? 1 : 0;
            sharing.note(small(file), Rank{(file + 1) % 3});
            sharing.note(small(file - std::min(file, behind)), Rank{3});
            EXPECT_NE(sharing.verdict(small(file)), Verdict::own);
        }
        EXPECT_GT(pushed, 2000 * 3 / 4);
    }
}

TEST(Sharing, ForgettingCostsTheVerdictOnly) {
    Sharing sharing({.nodes = 4, .groups_max = 2, .files_max = 10});
    for (std::uint32_t i = 0; i < 1000; ++i) {
        const std::string directory = "/d" + std::to_string(i % 5);
        sharing.note({ObjectKind::extent, directory + "/f" + std::to_string(i), i % 2}, Rank{i % 4});
    }
    EXPECT_EQ(sharing.verdict({ObjectKind::extent, "/d0/f0", 1}), Verdict::unknown);
    EXPECT_EQ(sharing.verdict({ObjectKind::extent, "/d0/f0"}), Verdict::shared);
}

}  // namespace
}  // namespace copper
