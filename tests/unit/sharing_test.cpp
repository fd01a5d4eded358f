#include "collectives/sharing.hpp"

#include <gtest/gtest.h>

#include <string>

namespace copper {
namespace {

using Askers = Sharing::Askers;
using Verdict = Sharing::Verdict;

constexpr Rank first{0};
constexpr Rank second{1};

ObjectKey large(std::uint32_t number) {
    return {ObjectKind::extent, "/data/shard" + std::to_string(number), 1};
}

ObjectKey small(std::uint32_t number) {
    return {ObjectKind::extent, "/data/" + std::to_string(number)};
}

ObjectKey name(std::uint32_t number) {
    return {ObjectKind::entry, "/data/" + std::to_string(number)};
}

void read(Sharing& sharing, const ObjectKey& key, Rank node, int extents) {
    for (int i = 0; i < extents; ++i) {
        sharing.note(key, node);
    }
}

// As the reader of the object does; true if it pushed it.
bool ask(Sharing& sharing, const ObjectKey& key, Rank node) {
    sharing.note(key, node);
    const bool is_pushed = sharing.verdict(key) == Verdict::shared;
    if (is_pushed) {
        sharing.note_pushed(key);
    }
    return is_pushed;
}

using KeyOf = ObjectKey (*)(std::uint32_t);

// A first node asks for one object after the other. How many are pushed before it asks for one that is not?
std::uint32_t pushed_in_a_row(Sharing& sharing, KeyOf key, std::uint32_t& next) {
    std::uint32_t pushed = 0;
    while (ask(sharing, key(next++), first)) {
        ++pushed;
    }
    return pushed;
}

class SharingByWindow : public testing::TestWithParam<KeyOf> {};
INSTANTIATE_TEST_SUITE_P(Groups, SharingByWindow, testing::Values(name, small),
                         [](const auto& key) { return key.param == name ? "Names" : "SmallFiles"; });

TEST_P(SharingByWindow, WhatOneNodeAsksForIsItsOwn) {
    Sharing sharing({.nodes = 4});
    for (std::uint32_t number = 0; number < 1000; ++number) {
        EXPECT_FALSE(ask(sharing, GetParam()(number), first)) << number;
        EXPECT_EQ(sharing.verdict(GetParam()(number)), Verdict::unknown) << number;
    }
    read(sharing, GetParam()(0), first, 10);
    EXPECT_EQ(sharing.verdict(GetParam()(0)), Verdict::unknown) << "it is the same node";
}

TEST_P(SharingByWindow, EachPieceOfEvidenceDoublesTheWindowUpToTheLargest) {
    Sharing sharing({.nodes = 4, .window_first = 4, .window_max = 64});
    std::uint32_t next = 0;
    EXPECT_EQ(pushed_in_a_row(sharing, GetParam(), next), 0U);
    for (const std::uint32_t window : {4U, 8U, 16U, 32U, 64U, 64U}) {
        // The second node comes to the last object, which was not pushed.
        EXPECT_TRUE(ask(sharing, GetParam()(next - 1), second));
        EXPECT_EQ(1 + pushed_in_a_row(sharing, GetParam(), next), window);
    }
}

// What all nodes use costs a request now and then.
TEST_P(SharingByWindow, TwoNodesThatUseTheSameAskForFewOfManyObjects) {
    Sharing sharing({.nodes = 4});
    std::uint32_t requests = 0;
    for (std::uint32_t number = 0; number < 5000; ++number) {
        const ObjectKey key = GetParam()(number);
        if (!ask(sharing, key, first)) {
            ++requests;
            EXPECT_TRUE(ask(sharing, key, second));
        }
    }
    EXPECT_EQ(requests, 12U) << "windows of 4, 8, ... 512, and four of 1,024";
}

TEST_P(SharingByWindow, WhatOnlyOneNodeGoesOnUsingIsPushedNoMore) {
    Sharing sharing({.nodes = 4});
    std::uint32_t next = 1;
    ask(sharing, GetParam()(0), first);
    ask(sharing, GetParam()(0), second);
    EXPECT_EQ(pushed_in_a_row(sharing, GetParam(), next), 3U);
    for (std::uint32_t i = 0; i < 1000; ++i) {
        ASSERT_FALSE(ask(sharing, GetParam()(next++), first));
    }
}

TEST_P(SharingByWindow, TheWindowBeginsAnewWhereOneNodeIsFarAhead) {
    for (const std::uint32_t ahead : {8U, 9U}) {
        Sharing sharing({.nodes = 4, .window_first = 4, .lead_max = 8});
        std::uint32_t next = 0;
        pushed_in_a_row(sharing, GetParam(), next);
        for (const std::uint32_t window : {4U, 8U, 16U}) {
            EXPECT_TRUE(ask(sharing, GetParam()(next - 1), second));
            EXPECT_EQ(1 + pushed_in_a_row(sharing, GetParam(), next), window);
        }
        const std::uint32_t asked_by_both = next - 1;
        for (std::uint32_t i = 1; i < ahead; ++i) {
            EXPECT_FALSE(ask(sharing, GetParam()(next++), first));
        }
        EXPECT_TRUE(ask(sharing, GetParam()(asked_by_both), second));
        EXPECT_EQ(1 + pushed_in_a_row(sharing, GetParam(), next), ahead <= 8 ? 32U : 4U) << ahead;
    }
}

// A node that has merged the interests of several says so.
TEST_P(SharingByWindow, OneInterestOfSeveralIsEvidenceEnough) {
    Sharing sharing({.nodes = 4});
    sharing.note(GetParam()(0), first, Askers::several);
    EXPECT_EQ(sharing.verdict(GetParam()(0)), Verdict::shared);
    sharing.note(GetParam()(0), second, Askers::several);
    std::uint32_t next = 1;
    EXPECT_EQ(pushed_in_a_row(sharing, GetParam(), next), 4U) << "and it is so once for each object";
}

TEST_P(SharingByWindow, EvidenceIsTakenOnce) {
    Sharing sharing({.nodes = 4});
    EXPECT_FALSE(sharing.take_evidence(GetParam()(0)));
    sharing.note(GetParam()(0), first);
    EXPECT_FALSE(sharing.take_evidence(GetParam()(0)));
    sharing.note(GetParam()(0), second);
    EXPECT_FALSE(sharing.take_evidence({ObjectKind::extent, "/elsewhere/0"})) << "of another group";
    EXPECT_TRUE(sharing.take_evidence(GetParam()(77))) << "with any object of the group";
    EXPECT_FALSE(sharing.take_evidence(GetParam()(0)));
    sharing.note(GetParam()(0), Rank{2});
    EXPECT_FALSE(sharing.take_evidence(GetParam()(0))) << "known of this object";
    sharing.note(GetParam()(1), first);
    sharing.note(GetParam()(1), second);
    EXPECT_TRUE(sharing.take_evidence(GetParam()(1)));
}

TEST_P(SharingByWindow, ADirectoryTellsNothingOfAnother) {
    Sharing sharing({.nodes = 4});
    sharing.note(GetParam()(0), first, Askers::several);
    EXPECT_EQ(sharing.verdict(GetParam()(1)), Verdict::shared);
    EXPECT_EQ(sharing.verdict({GetParam()(0).kind, "/data/below/1"}), Verdict::unknown);
    EXPECT_EQ(sharing.verdict({GetParam()(0).kind, "/other/1"}), Verdict::unknown);
}

TEST(Sharing, NodesThatUseTheSameNamesGetTheFirstSmallFiles) {
    Sharing sharing({.nodes = 4, .window_first = 4});
    sharing.note({ObjectKind::directory, "/data"}, first);
    EXPECT_EQ(sharing.verdict(small(0)), Verdict::unknown);
    sharing.note({ObjectKind::directory, "/data"}, second);
    EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown) << "a large file costs too much";
    std::uint32_t next = 0;
    EXPECT_EQ(pushed_in_a_row(sharing, small, next), 4U);
    sharing.note(name(0), first, Askers::several);
    EXPECT_EQ(pushed_in_a_row(sharing, small, next), 0U) << "the first ones only";
    sharing.note(small(next - 1), second);
    EXPECT_EQ(pushed_in_a_row(sharing, small, next), 8U) << "these nodes use the same files, too";
}

TEST(Sharing, SmallFilesTellNothingOfNames) {
    Sharing sharing({.nodes = 4});
    sharing.note(small(0), first, Askers::several);
    EXPECT_EQ(sharing.verdict(name(0)), Verdict::unknown);
}

TEST(Sharing, ALargeFileIsSharedWhenEnoughNodesAsk) {
    for (const auto& [nodes, enough] : {std::pair{2U, 2U}, {4U, 2U}, {64U, 8U}, {8192U, 90U}}) {
        Sharing sharing({.nodes = nodes});
        for (std::uint32_t node = 0; node < enough; ++node) {
            EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown) << node << " of " << nodes;
            sharing.note(large(0), Rank{node});
            sharing.note(large(0), Rank{node});
        }
        EXPECT_EQ(sharing.verdict(large(0)), Verdict::shared) << nodes;
        for (std::uint32_t index = 1; index < 100; ++index) {
            ObjectKey extent = large(0);
            extent.index = index;
            sharing.note_pushed(extent);
            EXPECT_EQ(sharing.verdict(extent), Verdict::shared) << "of all its extents";
        }
        EXPECT_EQ(sharing.verdict(large(1)), Verdict::unknown) << "each is judged for itself";
    }
}

TEST(Sharing, LargeFilesOfOneNodeEachAreItsOwn) {
    Sharing sharing({.nodes = 4});
    read(sharing, large(0), first, 8);
    EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown) << "others may come to it";
    read(sharing, large(1), second, 8);
    for (std::uint32_t file = 0; file < 4; ++file) {
        EXPECT_EQ(sharing.verdict(large(file)), Verdict::own) << file;
    }
    EXPECT_EQ(sharing.verdict({ObjectKind::extent, "/elsewhere/file", 1}), Verdict::unknown);
    EXPECT_EQ(sharing.verdict(small(0)), Verdict::unknown) << "small ones are judged by themselves";
}

TEST(Sharing, OneNodeThatReadsAheadOfTheOthersIsNoSign) {
    Sharing sharing({.nodes = 4});
    for (std::uint32_t file = 0; file < 10; ++file) {
        read(sharing, large(file), first, 100);
        EXPECT_EQ(sharing.verdict(large(file)), Verdict::unknown);
    }
}

TEST(Sharing, ASecondNodeAtOneOfFewFilesEndsItForAll) {
    Sharing sharing({.nodes = 100});
    read(sharing, large(0), first, 8);
    read(sharing, large(1), second, 8);
    ASSERT_EQ(sharing.verdict(large(0)), Verdict::own);
    sharing.note(large(0), Rank{2});
    EXPECT_EQ(sharing.verdict(large(0)), Verdict::unknown);
    EXPECT_EQ(sharing.verdict(large(1)), Verdict::unknown);
}

// Nodes that read small files of their own.
struct SmallShards {
    static constexpr std::uint32_t nodes = 100;
    static constexpr std::uint32_t judged = 16;

    SmallShards() {
        for (; next < judged; ++next) {
            EXPECT_EQ(sharing.verdict(small(next)), Verdict::unknown) << next;
            sharing.note(small(next), Rank{next});
        }
    }

    Sharing sharing = Sharing({.nodes = nodes});
    std::uint32_t next = 0;
};

TEST(Sharing, SmallFilesOfOneNodeEachAreItsOwn) {
    SmallShards job;
    for (; job.next < 5000; ++job.next) {
        EXPECT_EQ(job.sharing.verdict(small(job.next)), Verdict::own) << "not even asked for yet";
        job.sharing.note(small(job.next), Rank{job.next % SmallShards::nodes});
        ASSERT_EQ(job.sharing.verdict(small(job.next)), Verdict::own) << job.next;
    }
    EXPECT_EQ(job.sharing.verdict(name(0)), Verdict::unknown) << "names are nobody's own";
}

// One in eight is an exception; and after those that the window lets through, all is as before.
TEST(Sharing, ASmallFileThatSeveralWantIsAnException) {
    SmallShards job;
    job.sharing.note(small(0), Rank{77});
    for (int left = 4; left > 0; --left) {
        EXPECT_EQ(job.sharing.verdict(small(job.next)), Verdict::shared) << left;
        job.sharing.note_pushed(small(job.next++));
    }
    EXPECT_EQ(job.sharing.verdict(small(0)), Verdict::unknown) << "it is read for those who ask";
    EXPECT_EQ(job.sharing.verdict(small(1)), Verdict::own);
    EXPECT_EQ(job.sharing.verdict(small(job.next)), Verdict::own);
}

TEST(Sharing, SmallFilesThatOthersReadAfterAllAreNotLeftToThem) {
    SmallShards job;
    for (std::uint32_t file = 0; file < 3; ++file) {
        job.sharing.note(small(file), Rank{77});
    }
    while (job.sharing.verdict(small(job.next)) == Verdict::shared) {
        job.sharing.note_pushed(small(job.next++));
    }
    EXPECT_EQ(job.sharing.verdict(small(job.next)), Verdict::unknown) << "3 of 16 are more than an eighth";
}

TEST(Sharing, OfTooManyGroupsTheOldestIsForgotten) {
    Sharing sharing({.nodes = 4, .groups_max = 8});
    const auto file = [](int directory) {
        return ObjectKey{ObjectKind::extent, "/d" + std::to_string(directory) + "/f"};
    };
    for (int directory = 0; directory < 8; ++directory) {
        sharing.note(file(directory), first, Askers::several);
    }
    for (int directory = 0; directory < 8; ++directory) {
        EXPECT_EQ(sharing.verdict(file(directory)), Verdict::shared) << directory;
    }
    sharing.note(file(8), first, Askers::several);
    EXPECT_EQ(sharing.verdict(file(0)), Verdict::unknown);
    EXPECT_FALSE(sharing.take_evidence(file(0)));
    for (int directory = 1; directory < 9; ++directory) {
        EXPECT_EQ(sharing.verdict(file(directory)), Verdict::shared) << directory;
    }
    sharing.note(file(0), first, Askers::several);
    EXPECT_EQ(sharing.verdict(file(0)), Verdict::shared) << "judged anew";
}

TEST(Sharing, OfTooManyObjectsAllAreForgottenButNotTheWindows) {
    Sharing sharing({.nodes = 4, .objects_max = 10});
    sharing.note({ObjectKind::extent, "/shared/0"}, first, Askers::several);
    for (std::uint32_t file = 0; file < 9; ++file) {
        sharing.note(small(file), first);
    }
    sharing.note(small(9), first);  // the eleventh object
    sharing.note(small(0), second);
    EXPECT_EQ(sharing.verdict(small(0)), Verdict::unknown) << "who asked first is forgotten";
    sharing.note(small(9), second);
    EXPECT_EQ(sharing.verdict(small(9)), Verdict::shared);
    EXPECT_EQ(sharing.verdict({ObjectKind::extent, "/shared/1"}), Verdict::shared);
}

TEST(Sharing, WhoseFilesAreForgottenAreNobodysOwnAnyMore) {
    Sharing sharing({.nodes = 100, .objects_max = 20});
    for (std::uint32_t file = 0; file < 20; ++file) {
        sharing.note(small(file), Rank{file});
    }
    EXPECT_EQ(sharing.verdict(small(20)), Verdict::own);
    sharing.note(small(20), first);
    EXPECT_EQ(sharing.verdict(small(21)), Verdict::unknown);
}

// Whatever comes: counts of what was forgotten must not go wrong. (A wrong one would make files somebody's
// own.)
TEST(Sharing, ForgettingCostsTheVerdictOnly) {
    Sharing sharing({.nodes = 4, .groups_max = 3, .objects_max = 10});
    for (std::uint32_t i = 0; i < 10000; ++i) {
        const std::string directory = "/d" + std::to_string(i % 5);
        const ObjectKey key{ObjectKind::extent, directory + "/f" + std::to_string(i % 77), i % 2};
        sharing.note(key, Rank{i % 3}, i % 7 == 0 ? Askers::several : Askers::one);
        if (i % 3 == 0) {
            sharing.note_pushed(key);
        }
        sharing.note({ObjectKind::directory, directory}, Rank{i % 4});
    }
    const ObjectKey unseen{ObjectKind::extent, "/unseen/f"};
    for (std::uint32_t file = 0; file < 100; ++file) {
        ASSERT_NE(sharing.verdict({ObjectKind::extent, "/unseen/" + std::to_string(file)}), Verdict::own);
    }
    sharing.note(unseen, first);
    EXPECT_EQ(sharing.verdict(unseen), Verdict::unknown);
    sharing.note(unseen, second);
    EXPECT_EQ(sharing.verdict(unseen), Verdict::shared);
}

}  // namespace
}  // namespace copper
