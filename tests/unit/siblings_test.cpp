#include "cache/guesses/siblings.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <vector>

namespace copper {
namespace {

using Use = Siblings::Use;

// A cache whose objects arrive when the test says so.
class SiblingsTest : public testing::Test {
  protected:
    static std::string name(int i) { return "m" + std::to_string(1000 + i) + ".pyc"; }
    static std::string path(int i) { return "/t/d/" + name(i); }

    void put_directory(int files, std::chrono::microseconds operation_time,
                       const std::string& directory_path = "/t/d") {
        std::vector<Listing::NewEntry> names;
        for (int i = 0; i < files; ++i) {
            names.push_back({.name = name(i), .target = {}, .attributes = {.inode = 1, .mode = S_IFREG}});
        }
        names.push_back({.name = "sub.pyc", .target = {}, .attributes = {.inode = 1, .mode = S_IFDIR}});
        names.push_back({.name = "other.txt", .target = {}, .attributes = {.inode = 1, .mode = S_IFREG}});
        Directory directory;
        directory.names = Listing(names, Listing::Detail::names_only);
        directory.entries = directory.names.size();
        directory.first_names = {std::string(directory.names.at(0).name)};
        directory.operation_time = operation_time;
        cache.deliver({.kind = ObjectKind::directory, .path = directory_path}, make_object(directory));
    }
    void arrive() {
        while (!asked.empty()) {
            const ObjectKey key = asked.front();
            asked.pop_front();
            if (key.kind == ObjectKind::entry) {
                cache.deliver(key,
                              make_object(Listing({{.name = key.path.substr(key.path.rfind('/') + 1),
                                                    .target = {},
                                                    .attributes = {.size = file_bytes, .mode = S_IFREG}}},
                                                  Listing::Detail::attributes)));
            } else {
                cache.deliver(key, make_object(Extent()));
            }
        }
    }
    std::size_t count(ObjectKind kind) const {
        return static_cast<std::size_t>(std::count_if(
            all_asked.begin(), all_asked.end(), [kind](const ObjectKey& key) { return key.kind == kind; }));
    }

    static constexpr std::chrono::microseconds slow{700};
    std::uint64_t file_bytes = 5000;
    std::deque<ObjectKey> asked;
    std::vector<ObjectKey> all_asked;
    Cache cache{{.budget_bytes = 1U << 24U}, [this](const ObjectKey& key, FetchFor) {
                    asked.push_back(key);
                    all_asked.push_back(key);
                }};
    GuessCounters counters;
    Siblings siblings{std::make_shared<Ahead>(cache, Trees({"/t"}), extent_bytes), counters};
};

TEST_F(SiblingsTest, BesideAFileOthersOfItsKindAreFetched) {
    put_directory(100, slow);
    siblings.used(path(3), Use::read, Foresight::unforeseen);
    EXPECT_EQ(count(ObjectKind::entry), Siblings::window_min);
    EXPECT_EQ(counters.fetched, Siblings::window_min);
    for (const ObjectKey& key : all_asked) {
        EXPECT_TRUE(key.path.ends_with(".pyc") && key.path != "/t/d/sub.pyc") << key.path;
        EXPECT_NE(key.path, path(3)) << "used already";
    }
    arrive();
    EXPECT_EQ(count(ObjectKind::extent), Siblings::window_min);
}

TEST_F(SiblingsTest, OfWhatIsLookedUpTheAttributesAreFetched) {
    put_directory(100, slow);
    siblings.used(path(3), Use::looked_up, Foresight::unforeseen);
    arrive();
    EXPECT_EQ(count(ObjectKind::entry), Siblings::window_min);
    EXPECT_EQ(count(ObjectKind::extent), 0U);
}

TEST_F(SiblingsTest, TheSameFileAgainTellsNothing) {
    put_directory(100, slow);
    for (int i = 0; i < 20; ++i) {
        siblings.used(path(3), Use::read, Foresight::unforeseen);
        arrive();
    }
    EXPECT_EQ(counters.fetched, Siblings::window_min);
}

TEST_F(SiblingsTest, AProgramThatUsesAllIsNeverWaitedFor) {
    put_directory(500, slow);
    for (int i = 0; i < 500; ++i) {
        siblings.used(path(i), Use::read, Foresight::unforeseen);
        arrive();
    }
    EXPECT_GE(counters.used, 490U);
    EXPECT_EQ(count(ObjectKind::entry), counters.fetched) << "each once";
}

TEST_F(SiblingsTest, WhereFewFilesAreUsedFewAreFetchedInVain) {
    put_directory(2000, slow);
    for (int i = 0; i < 2000; i += 500) {
        siblings.used(path(i), Use::read, Foresight::unforeseen);
        arrive();
    }
    EXPECT_LE(counters.fetched - counters.used,
              Siblings::window_min + Siblings::window_growth * counters.used);
    EXPECT_EQ(counters.used, 0U);
}

TEST_F(SiblingsTest, WhatIsInFlightIsBounded) {
    put_directory(500, slow);
    for (int i = 0; i < 100; ++i) {
        siblings.used(path(i), Use::read, Foresight::unforeseen);
    }
    EXPECT_LE(asked.size(), Ahead::in_flight_max);
    arrive();
    EXPECT_EQ(count(ObjectKind::entry), counters.fetched) << "the others follow";
}

TEST_F(SiblingsTest, AFilesystemThatAnswersAtOnceIsLeftAlone) {
    put_directory(100, std::chrono::microseconds(5));
    for (int i = 0; i < 20; ++i) {
        siblings.used(path(i), Use::read, Foresight::unforeseen);
    }
    EXPECT_TRUE(asked.empty());
}

TEST_F(SiblingsTest, LargeFilesAreNotReadAhead) {
    put_directory(100, slow);
    file_bytes = extent_bytes + 1;
    for (int i = 0; i < 20; ++i) {
        siblings.used(path(i), Use::read, Foresight::unforeseen);
        arrive();
    }
    EXPECT_GT(count(ObjectKind::entry), 0U);
    EXPECT_EQ(count(ObjectKind::extent), 0U);
}

// The first directory is forgotten after many others, so its first file is a first one again.
TEST_F(SiblingsTest, WhatIsRememberedIsBounded) {
    put_directory(2000, slow);
    siblings.used(path(0), Use::looked_up, Foresight::unforeseen);
    arrive();
    for (int i = 0; i < 40; ++i) {
        const std::string directory = "/t/d" + std::to_string(i);
        put_directory(2000, slow, directory);
        siblings.used(directory + "/" + name(0), Use::looked_up, Foresight::unforeseen);
        arrive();
    }
    const std::uint64_t before = counters.fetched;
    siblings.used(path(0), Use::looked_up, Foresight::unforeseen);
    EXPECT_GT(counters.fetched, before);
}

TEST_F(SiblingsTest, WhatOthersForesawTellsNothing) {
    put_directory(100, slow);
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(siblings.used(path(i), Use::read, Foresight::foreseen));
    }
    EXPECT_TRUE(asked.empty());
    siblings.used(path(20), Use::read, Foresight::unforeseen);
    EXPECT_EQ(count(ObjectKind::entry), Siblings::window_min);
    for (const ObjectKey& key : all_asked) {
        EXPECT_GT(key.path, path(20)) << "used already";
    }
    EXPECT_TRUE(siblings.used(path(21), Use::read, Foresight::foreseen)) << "this guesser foresaw it";
    EXPECT_EQ(counters.fetched, Siblings::window_min + 1 + Siblings::window_growth);
}

TEST_F(SiblingsTest, UnknownDirectoriesTellNothing) {
    for (int i = 0; i < 20; ++i) {
        siblings.used(path(i), Use::read, Foresight::unforeseen);
    }
    EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace copper
