#include "profile/profile.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/path.hpp"
#include "profile/profile_file.hpp"
#include "profile/use_log.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;
using test::TemporaryDirectory;
using Use = Profile::Use;

Use use(const std::string& path, ObjectKind kind = ObjectKind::entry, std::uint32_t index = 0) {
    return {.key = {.kind = kind, .path = path, .index = index}};
}

Use use_at(const std::string& path, std::chrono::milliseconds first_used) {
    Use made = use(path);
    made.first_used = first_used;
    return made;
}

std::vector<std::string> paths(const Profile& profile) {
    std::vector<std::string> all;
    for (const Use& one : profile.uses) {
        all.push_back(one.key.path);
    }
    return all;
}

Profile some_profile() {
    Profile profile{.trees = {"/lus/a", "/soft"}, .nodes_asked = 16, .runs = 3};
    profile.uses = {use("/lus/a/numpy", ObjectKind::directory), use("/lus/a/numpy/__init__.py"),
                    use("/lus/a/numpy/core.so", ObjectKind::extent, 7),
                    use("/lus/a/\xff\n", ObjectKind::xattrs), use("/", ObjectKind::directory)};
    profile.uses[1].nodes = 9;
    profile.uses[2].runs_missed = 2;
    profile.uses[3].first_used = 1234567ms;
    return profile;
}

TEST(Profile, SurvivesItsFile) {
    const auto read = decode_profile(encode(some_profile()));
    ASSERT_TRUE(read) << read.error();
    EXPECT_EQ(*read, some_profile());
}

TEST(Profile, IsSmall) {
    Profile profile;
    for (int i = 0; i < 1000; ++i) {
        profile.uses.push_back(
            use("/lus/software/env/lib/python3/site-packages/torch/module_" + std::to_string(i)));
    }
    EXPECT_LT(encode(profile).size(), 64000U);
}

TEST(Profile, WhatIsCutOffAnywhereIsRefused) {
    const std::string whole = encode(some_profile());
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        EXPECT_FALSE(decode_profile(whole.substr(0, bytes))) << bytes;
    }
}

TEST(Profile, NonsenseIsRefused) {
    Profile bad = some_profile();
    EXPECT_FALSE(decode_profile(std::string(10000, 'x')));
    for (const char* path : {"relative", "", "/a/../b", "/a//b", "/a/"}) {
        bad.uses[1].key.path = path;
        EXPECT_FALSE(decode_profile(encode(bad))) << path;
    }
    bad = some_profile();
    bad.uses[0].key.kind = ObjectKind::own_extent;
    EXPECT_FALSE(decode_profile(encode(bad)));
    bad = {};
    bad.uses.assign(profile_uses_max + 1, use("/a"));
    EXPECT_NE(decode_profile(encode(bad)).error().find("more than"), std::string::npos);
}

TEST(Profile, OfAnotherVersionIsRefused) {
    std::string bytes = encode(some_profile());
    constexpr std::string_view mark =
        "\x0e"
        "Copper profile";
    ASSERT_TRUE(bytes.starts_with(mark));
    bytes[mark.size()] = 7;
    const auto read = decode_profile(bytes);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error(), "is of version 7; this program writes version 2");
}

TEST(Profile, JoinsWhatNodesUsedByTheirFirstUse) {
    JoinedUses nodes;
    nodes.add({use_at("/t/a", 10ms), use_at("/t/c", 30ms)});
    nodes.add({use_at("/t/b", 5ms), use_at("/t/a", 20ms)});
    nodes.add({use_at("/t/a", 40ms)});
    nodes.add({use_at("/t/c", 25ms)});
    const Profile run = nodes.profile(4);
    EXPECT_EQ(paths(run), (std::vector<std::string>{"/t/b", "/t/a", "/t/c"}));
    EXPECT_EQ(run.nodes_asked, 4U);
    EXPECT_EQ(run.uses[1].nodes, 3U);
    EXPECT_EQ(run.uses[1].first_used, 10ms);
    EXPECT_FALSE(run.is_for_everyone(run.uses[0]));
    EXPECT_TRUE(run.is_for_everyone(run.uses[1]));
    EXPECT_TRUE(run.is_for_everyone(run.uses[2]));
}

TEST(Profile, WhatIsNotUsedAnyMoreFades) {
    Profile profile{.uses = {use("/t/old"), use("/t/both")}};
    for (std::uint32_t run = 1; run < profile_runs_missed_max; ++run) {
        profile = merged(profile, {.uses = {use("/t/both"), use("/t/new")}});
        EXPECT_EQ(paths(profile), (std::vector<std::string>{"/t/both", "/t/new", "/t/old"}));
        EXPECT_EQ(profile.uses.back().runs_missed, run);
        EXPECT_EQ(profile.runs, run + 1);
    }
    profile = merged(profile, {.uses = {use("/t/new")}});
    EXPECT_EQ(paths(profile), (std::vector<std::string>{"/t/new", "/t/both"}));
}

TEST(Profile, HasAMaximumOfUses) {
    const auto many = [](const std::string& prefix) {
        std::vector<Use> uses;
        for (std::size_t i = 0; i < profile_uses_max; ++i) {
            uses.push_back(use(prefix + std::to_string(i)));
        }
        return uses;
    };
    JoinedUses nodes;
    nodes.add(many("/t/a"));
    nodes.add(many("/t/b"));
    EXPECT_EQ(nodes.profile(2).uses.size(), profile_uses_max);
    EXPECT_EQ(merged({.uses = many("/t/a")}, {.uses = many("/t/b")}).uses.size(), profile_uses_max);
}

// Neighbours share little of their paths, so the file holds nearly all of each.
TEST(Profile, OfLongPathsFitsIntoItsFile) {
    std::string tail;
    while (tail.size() < 3500) {
        tail += "/" + std::string(name_bytes_max, 'x');
    }
    std::vector<Use> too_many;
    for (std::size_t bytes = 0; bytes <= profile_bytes_max; bytes += bytes_of(too_many.back())) {
        too_many.push_back(use("/" + std::to_string(too_many.size()) + tail));
    }
    JoinedUses nodes;
    nodes.add(too_many);
    const Profile run = nodes.profile(1);
    EXPECT_EQ(run.uses.size(), too_many.size() - 1);
    const std::string file = encode(run);
    EXPECT_LE(file.size(), profile_bytes_max);
    EXPECT_EQ(decode_profile(file), run);
    EXPECT_LE(encode(merged({.uses = too_many}, {.uses = {use("/c")}})).size(), profile_bytes_max);
    EXPECT_NE(decode_profile(encode({.uses = too_many})).error().find("more than"), std::string::npos);
}

class ProfileFile : public testing::Test {
  protected:
    TemporaryDirectory directory;
    const std::string file = directory.path() + "/not/there/yet.profile";
};

TEST_F(ProfileFile, IsReplacedAtOnceAndReadBack) {
    ASSERT_TRUE(write_profile(file, {.uses = {use("/t/a")}}));
    ASSERT_TRUE(write_profile(file, some_profile()));
    EXPECT_EQ(read_profile(file), some_profile());
    const auto all = std::filesystem::directory_iterator(directory.path() + "/not/there");
    EXPECT_EQ(std::distance(begin(all), end(all)), 1) << "nothing is left of the writing";
    struct stat found = {};
    ASSERT_EQ(::stat((directory.path() + "/not").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777U, 0700U);
}

TEST_F(ProfileFile, ErrorsNameTheFile) {
    EXPECT_NE(read_profile(file).error().find(file), std::string::npos);
    std::ofstream(directory.path() + "/damaged") << "no profile";
    EXPECT_NE(read_profile(directory.path() + "/damaged").error().find("damaged: is not a profile"),
              std::string::npos);
    EXPECT_FALSE(read_profile(directory.path()));
    EXPECT_FALSE(write_profile(directory.path() + "/damaged/below", some_profile()));
}

TEST(UseLog, NotesEachObjectOnceInOrder) {
    TimePoint now{1h};
    UseLog log([&now] { return now; });
    ObjectKey key{ObjectKind::extent, "/t/a", 3, 17};
    log.note(key);
    now += 250ms;
    key.version = 18;
    log.note(key);
    log.note({ObjectKind::entry, "/t/a"});
    log.note({ObjectKind::own_extent, "/t/a"});
    const auto uses = log.since(0);
    ASSERT_EQ(uses.size(), 2U);
    EXPECT_EQ(uses[0], use("/t/a", ObjectKind::extent, 3));
    EXPECT_EQ(uses[1].first_used, 250ms);
    EXPECT_EQ(log.hashes_since(0), (std::vector{hash_of(uses[0].key), hash_of(uses[1].key)}));
    EXPECT_EQ(log.hashes_since(1).size(), 1U);
    EXPECT_TRUE(log.hashes_since(1000).empty());
    EXPECT_EQ(log.since(1).size(), 1U);
    EXPECT_TRUE(log.since(2).empty());
    EXPECT_TRUE(log.since(1000).empty());
}

TEST(UseLog, IsBoundedAndToldInParts) {
    UseLog log;
    for (std::size_t i = 0; i < UseLog::uses_max + 10; ++i) {
        log.note({ObjectKind::entry, "/t/" + std::to_string(i)});
    }
    EXPECT_EQ(log.size(), UseLog::uses_max);
    std::size_t told = 0;
    for (std::size_t parts = 0; told < log.size(); ++parts) {
        const auto part = log.since(told, 100000);
        ASSERT_FALSE(part.empty());
        EXPECT_LT(encode({.uses = part}).size(), 120000U);
        told += part.size();
    }
    EXPECT_EQ(told, UseLog::uses_max);
}

}  // namespace
}  // namespace copper
