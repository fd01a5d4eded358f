#include "cache/walk.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/path.hpp"
#include "cache/batch_evidence.hpp"
#include "tests/support/directory_object.hpp"

namespace copper {
namespace {

// A cache over a tree of directories. What it fetches arrives when the test says so.
class Walking : public testing::Test {
  protected:
    void add_directories(const std::string& directory, std::size_t count, int levels) {
        std::vector<Listing::NewEntry> entries;
        for (std::size_t i = 0; i < count; ++i) {
            const std::string name = "d" + std::to_string(100'000 + i);
            entries.push_back({name, "", {.inode = i + 1, .mode = S_IFDIR | 0755}});
            if (levels > 1) {
                add_directories(join_path(directory, name), count, levels - 1);
            }
        }
        tree[directory] = make_object(test::directory_of(std::move(entries)));
    }
    ObjectPtr object_of(const std::string& directory) const {
        const auto found = tree.find(directory);
        return found != tree.end() ? found->second : make_object(Directory());
    }

    // All that is in flight arrives, and what that makes the walk fetch stays in flight.
    void round_trip() {
        ++round_trips;
        for (const auto& path : std::exchange(in_flight, {})) {
            cache.deliver({.kind = ObjectKind::directory, .path = path}, object_of(path));
        }
    }
    // A program lists it: it waits until the names are there.
    ObjectPtr list(const std::string& directory) {
        ObjectPtr object;
        cache.get({.kind = ObjectKind::directory, .path = directory},
                  [&](const ObjectPtr& arrived) { object = arrived; });
        while (object == nullptr) {
            round_trip();
        }
        walk.listed(directory, object);
        return object;
    }
    // As find(1) does.
    void walk_below(const std::string& directory) {
        const ObjectPtr object = list(directory);
        ++listed;
        const Listing& names = object->directory()->names;
        for (std::size_t i = 0; i < names.size(); ++i) {
            walk_below(join_path(directory, names.at(i).name));
        }
    }

    std::map<std::string, ObjectPtr> tree;
    std::vector<std::string> in_flight;
    std::size_t fetched = 0;
    std::size_t listed = 0;
    std::size_t round_trips = 0;
    std::set<std::string> attributes_fetched;
    Cache cache{{.budget_bytes = 1U << 30}, [this](const ObjectKey& key, FetchFor) {
                    if (key.kind == ObjectKind::batch) {
                        attributes_fetched.insert(key.path);
                        return;
                    }
                    if (std::ranges::find(in_flight, key.path) != in_flight.end()) {
                        return;  // a program waits for it by now
                    }
                    ++fetched;
                    in_flight.push_back(key.path);
                }};
    Walk walk{cache};
};

TEST_F(Walking, OneListingOfAWideDirectoryFetchesNothingAhead) {
    add_directories("/wide", piece_entries, 1);
    add_directories("/warm", 50, 1);
    walk_below("/warm");  // ends as a walk
    const std::size_t before = fetched;
    list("/wide");
    for (int i = 0; i < 20; ++i) {
        round_trip();
        list("/wide");
    }
    EXPECT_EQ(fetched - before, 1U);
}

// Its names come in pieces, for a program that has much to do with them.
TEST_F(Walking, AHugeDirectoryFetchesNothingAhead) {
    Directory huge;
    huge.entries = 3 * piece_entries;
    huge.first_names = {"a", "b", "c"};
    tree["/t"] = make_object(huge);
    for (int i = 0; i < 20; ++i) {
        list("/t");
        round_trip();
    }
    EXPECT_EQ(fetched, 1U);
}

TEST_F(Walking, ListingsHereAndThereFetchNothingAhead) {
    for (int i = 0; i < 100; ++i) {
        const std::string directory = "/wide" + std::to_string(i);
        add_directories(directory, 1000, 1);
        list(directory);
    }
    EXPECT_EQ(fetched, 100U);
}

// The kernel asks for them with the first names.
TEST_F(Walking, OnAFastFilesystemTheAttributesComeAlong) {
    for (const bool is_fast : {true, false}) {
        const std::string top = is_fast ? "/fast" : "/slow";
        add_directories(top, 100, 2);
        for (auto& [path, object] : tree) {
            Directory directory = *object->directory();
            directory.operation_time = is_fast ? std::chrono::microseconds(0) : BatchEvidence::fast_operation;
            object = make_object(std::move(directory));
        }
        attributes_fetched.clear();
        walk_below(top);
        EXPECT_EQ(attributes_fetched.size() > 80, is_fast);
        EXPECT_EQ(attributes_fetched.empty(), !is_fast);
    }
}

TEST_F(Walking, WhatIsFetchedAheadIsUsed) {
    add_directories("/t", 12, 3);
    walk_below("/t");
    EXPECT_EQ(listed, 1U + 12 + 144 + 1728);
    EXPECT_EQ(fetched, listed) << "each once";
    // Without a walk there is one for each directory.
    EXPECT_LE(round_trips, 40U);
}

TEST_F(Walking, AWalkThatEndsLeavesNoMoreThanItUsed) {
    add_directories("/t", 30, 3);
    list("/t");
    std::size_t count = 1;
    for (const auto* path : {"/t/d100000", "/t/d100000/d100000"}) {
        list(path);
        ++count;
    }
    for (std::size_t i = 0; i < 27; ++i, ++count) {
        list("/t/d100000/d100000/d" + std::to_string(100'000 + i));
        round_trip();
        EXPECT_LE(fetched, Walk::window_min + 2 * count) << count;
    }
}

TEST_F(Walking, FilesThatAreReadInBetweenAreNoWalk) {
    add_directories("/t", 12, 2);
    list("/t");
    for (std::size_t i = 0; i < 12; ++i) {
        list("/t/d" + std::to_string(100'000 + i));
        walk.file_read();
    }
    EXPECT_EQ(fetched, 13U);
}

}  // namespace
}  // namespace copper
