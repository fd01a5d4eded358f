#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cache/backing/read_versions.hpp"
#include "daemon/revalidation.hpp"

namespace copper {
namespace {

constexpr auto a_directory = ReadVersions::Kind::directory;
constexpr auto a_file = ReadVersions::Kind::file;

std::multiset<std::string> paths_in(const ReadVersions::Paths& round) {
    std::multiset<std::string> paths;
    for (const auto& [path, version] : round) {
        paths.insert(path);
    }
    return paths;
}

TEST(ReadVersions, ARoundHasAllDirectoriesAndAsManyFiles) {
    ReadVersions versions;
    constexpr std::size_t directories = 2 * ReadVersions::files_a_round;
    for (std::size_t i = 0; i < directories; ++i) {
        versions.note(a_directory, "/d" + std::to_string(i), {});
    }
    constexpr std::size_t files = 5 * directories / 2;
    for (std::size_t i = 0; i < files; ++i) {
        versions.note(a_file, "/f" + std::to_string(i), {});
    }
    std::multiset<std::string> seen;
    for (int round = 0; round < 5; ++round) {
        auto paths = paths_in(versions.next_round());
        EXPECT_EQ(paths.size(), 2 * directories);
        EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), paths.size());
        seen.merge(paths);
    }
    EXPECT_EQ(seen.size(), 10 * directories);
    EXPECT_EQ(seen.count("/d7"), 5U);
    for (std::size_t i = 0; i < files; ++i) {
        EXPECT_EQ(seen.count("/f" + std::to_string(i)), 2U) << i;
    }
}

TEST(ReadVersions, ARoundHasAllFilesWhereTheyAreFew) {
    ReadVersions versions;
    EXPECT_TRUE(versions.next_round().empty());
    versions.note(a_directory, "/", {});
    versions.note(a_file, "/f", {.size = 1});
    versions.note(a_file, "/g", {.size = 1});
    versions.note(a_file, "/f", {.size = 2});
    const ReadVersions::Paths all = {{"/", {}}, {"/f", {.size = 1}}, {"/g", {.size = 1}}};
    for (int round = 0; round < 2; ++round) {
        auto found = versions.next_round();
        std::ranges::sort(found, {}, &ReadVersions::Paths::value_type::first);
        EXPECT_EQ(found, all);
    }
}

TEST(ReadVersions, ForgetsWhatHasNotBeenReadAgain) {
    ReadVersions versions;
    versions.note(a_directory, "/d", {.size = 1});
    versions.note(a_file, "/f", {.size = 1});
    const auto round = versions.next_round();
    versions.note(a_file, "/f", {.size = 2});
    versions.forget(round);
    EXPECT_EQ(versions.next_round(), (ReadVersions::Paths{{"/f", {.size = 2}}}));
}

TEST(ReadVersions, WhatIsReadAnewHidesNoOlderVersionThatANodeMayShow) {
    ReadVersions versions;
    versions.note(a_file, "/f", {.size = 1});
    versions.note(a_file, "/f", {.size = 2});
    const auto round = versions.next_round();
    EXPECT_EQ(round, (ReadVersions::Paths{{"/f", {.size = 1}}}));
    versions.forget(round);
    const auto next = versions.next_round();
    EXPECT_EQ(next, (ReadVersions::Paths{{"/f", {.size = 2}}}));
    versions.forget(next);
    EXPECT_TRUE(versions.next_round().empty());
}

TEST(ReadVersions, HasALimit) {
    ReadVersions versions;
    for (std::size_t i = 0; i < ReadVersions::paths_max; ++i) {
        versions.note(a_file, std::to_string(i), {});
    }
    EXPECT_FALSE(versions.is_full());
    versions.note(a_file, "0", {.size = 1});
    EXPECT_FALSE(versions.is_full());
    versions.note(a_directory, "one more", {});
    EXPECT_TRUE(versions.is_full());
}

std::vector<std::string> refreshed_texts(const std::vector<std::string>& changed) {
    std::vector<std::string> texts;
    for (const auto& [path, reach, id] : refreshed_by_change(changed)) {
        texts.push_back(path + (reach == Reach::one_level ? "" : " and below"));
    }
    return texts;
}

TEST(Revalidation, RefreshesEachOfFewPathsAlone) {
    using Texts = std::vector<std::string>;
    EXPECT_EQ(refreshed_texts({"/t/a", "/t/b/c"}), (Texts{"/t/a", "/t/b/c"}));
    EXPECT_EQ(refreshed_texts({"/"}), Texts{"/"});
    EXPECT_EQ(refreshed_texts({"/t/a", "/t/b/\xff"}), Texts{"/t and below"}) << "JSON has no such name";
    EXPECT_EQ(refreshed_texts({"/t/\xff/c"}), Texts{"/t and below"});
    EXPECT_EQ(refreshed_texts({"/\xff"}), Texts{"/ and below"});
}

TEST(Revalidation, RefreshesADirectoryWhereMuchHasChanged) {
    std::vector<std::string> changed = {"/t/ab"};
    for (int i = 0; i < 1000; ++i) {
        changed.push_back("/t/a/" + std::to_string(i) + "/x");
    }
    EXPECT_EQ(refreshed_texts(changed), std::vector<std::string>{"/t and below"});
    changed.front() = "/t/a";
    EXPECT_EQ(refreshed_texts(changed), std::vector<std::string>{"/t/a and below"});
    changed.front() = "/u";
    EXPECT_EQ(refreshed_texts(changed), std::vector<std::string>{"/ and below"});
}

}  // namespace
}  // namespace copper
