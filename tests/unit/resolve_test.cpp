#include "cache/resolve.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

namespace copper {
namespace {

Listing::NewEntry file(std::string name, std::uint64_t inode, std::string target = {}) {
    return {.name = std::move(name),
            .target = std::move(target),
            .attributes = {.inode = inode, .mode = S_IFREG}};
}

// Answers each fetch at once from a table and notes what was asked.
class Resolve : public testing::Test {
  protected:
    Resolution resolve(const std::string& directory, const std::string& name) {
        Resolution result = tl::unexpected(std::make_error_code(std::errc::timed_out));
        int calls = 0;
        copper::resolve(cache, trees, directory, name, [&](const Resolution& resolution) {
            result = resolution;
            ++calls;
        });
        EXPECT_EQ(calls, 1);
        return result;
    }

    void fetch(const ObjectKey& key) {
        fetched.push_back(to_string(key));
        const auto found = objects.find(key);
        cache.deliver(key, found != objects.end() ? found->second : make_error(EIO));
    }

    const Trees trees{{"/tree"}};
    std::map<ObjectKey, ObjectPtr> objects;
    std::vector<std::string> fetched;
    Cache cache{{.budget_bytes = 1U << 30U}, [this](const ObjectKey& key) { fetch(key); }};
};

TEST_F(Resolve, AListingAnswersForPresentAndAbsentNames) {
    objects[{.kind = ObjectKind::listing, .path = "/tree"}] =
        make_object(Listing({file("a", 1), file("l", 2, "target")}, Listing::Detail::attributes));
    const auto a = resolve("/tree", "a");
    ASSERT_TRUE(a && *a);
    EXPECT_EQ((*a)->attributes.inode, 1U);
    EXPECT_EQ((*resolve("/tree", "l"))->target, "target");
    for (int i = 0; i < 1000; ++i) {
        const auto absent = resolve("/tree", "absent" + std::to_string(i));
        ASSERT_TRUE(absent);
        EXPECT_FALSE(*absent);
    }
    EXPECT_EQ(fetched, std::vector<std::string>{"listing /tree#0"}) << "absent names cost nothing";
}

TEST_F(Resolve, AHugeDirectoryIsAnsweredByTheRightBatch) {
    std::vector<Listing::NewEntry> names;
    for (std::size_t i = 0; i < 3 * batch_entries; ++i) {
        names.push_back(file(std::to_string(10000 + i), 0));
    }
    objects[{.kind = ObjectKind::listing, .path = "/tree"}] =
        make_object(Listing(names, Listing::Detail::names_only));
    objects[{.kind = ObjectKind::batch, .path = "/tree", .index = 1}] =
        make_object(Listing({file(std::to_string(10000 + batch_entries), 77)}, Listing::Detail::attributes));
    const auto found = resolve("/tree", std::to_string(10000 + batch_entries));
    ASSERT_TRUE(found && *found);
    EXPECT_EQ((*found)->attributes.inode, 77U);
    EXPECT_FALSE(*resolve("/tree", "absent"));
    EXPECT_EQ(fetched, (std::vector<std::string>{"listing /tree#0", "batch /tree#1"}));
}

TEST_F(Resolve, WhatABatchLacksIsAskedForItself) {
    objects[{.kind = ObjectKind::listing, .path = "/tree"}] =
        make_object(Listing({file("a", 0)}, Listing::Detail::names_only));
    objects[{.kind = ObjectKind::batch, .path = "/tree"}] =
        make_object(Listing({}, Listing::Detail::attributes));
    objects[{.kind = ObjectKind::entry, .path = "/tree/a"}] = make_error(EACCES);
    const auto result = resolve("/tree", "a");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), std::errc::permission_denied);
}

TEST_F(Resolve, ADirectoryThatMayOnlyBeSearched) {
    objects[{.kind = ObjectKind::listing, .path = "/tree"}] = make_error(EACCES);
    objects[{.kind = ObjectKind::entry, .path = "/tree/a"}] =
        make_object(Listing({file("a", 5)}, Listing::Detail::attributes));
    objects[{.kind = ObjectKind::entry, .path = "/tree/b"}] =
        make_object(Listing({}, Listing::Detail::attributes));
    EXPECT_EQ((*resolve("/tree", "a"))->attributes.inode, 5U);
    const auto absent = resolve("/tree", "b");
    ASSERT_TRUE(absent);
    EXPECT_FALSE(*absent);
}

TEST_F(Resolve, OutsideTheTreesOnlyTheEntryIsRead) {
    objects[{.kind = ObjectKind::entry, .path = "/other/a"}] =
        make_object(Listing({file("a", 5)}, Listing::Detail::attributes));
    EXPECT_EQ((*resolve("/other", "a"))->attributes.inode, 5U);
    EXPECT_EQ(fetched, std::vector<std::string>{"entry /other/a#0"});
}

TEST_F(Resolve, ErrorsOfTheListingPassThrough) {
    objects[{.kind = ObjectKind::listing, .path = "/tree"}] = make_error(ESTALE);
    const auto result = resolve("/tree", "a");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().value(), ESTALE);
}

}  // namespace
}  // namespace copper
