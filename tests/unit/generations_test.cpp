#include "cache/generations.hpp"

#include <gtest/gtest.h>

#include <string>

namespace copper {
namespace {

std::uint64_t generation_of(const Generations& generations, ObjectKind kind, const std::string& path) {
    return generations.of({.kind = kind, .path = path});
}

TEST(Generations, CoverAPathAndWhatLiesBelow) {
    Generations generations;
    EXPECT_EQ(generation_of(generations, ObjectKind::entry, "/a/b"), 0U);
    ASSERT_TRUE(generations.add({.path = "/a/b", .id = 5}));
    EXPECT_EQ(generation_of(generations, ObjectKind::entry, "/a/b"), 5U);
    EXPECT_EQ(generation_of(generations, ObjectKind::directory, "/a/b/c"), 5U);
    EXPECT_EQ(generation_of(generations, ObjectKind::entry, "/a/bc"), 0U);
    EXPECT_EQ(generation_of(generations, ObjectKind::entry, "/b"), 0U);
}

// A directory on the way may have been absent.
TEST(Generations, CoverWhatIsKnownOfTheWayToAPath) {
    Generations generations;
    generations.add({.path = "/a/b", .id = 5});
    for (const auto kind : {ObjectKind::directory, ObjectKind::names, ObjectKind::batch,
                            ObjectKind::xattr_batch, ObjectKind::acl_batch}) {
        EXPECT_EQ(generation_of(generations, kind, "/a"), 5U);
        EXPECT_EQ(generation_of(generations, kind, "/"), 5U);
        EXPECT_EQ(generation_of(generations, kind, "/b"), 0U);
    }
    EXPECT_EQ(generation_of(generations, ObjectKind::entry, "/a"), 5U);
}

TEST(Generations, OfOneLevelCoverAttributesAndNames) {
    Generations generations;
    ASSERT_TRUE(generations.add({.path = "/a/b", .reach = Reach::one_level, .id = 5}));
    using enum ObjectKind;
    for (const auto kind : {entry, directory, names, batch, xattrs, xattr_batch, acl, acl_batch, extent}) {
        EXPECT_EQ(generation_of(generations, kind, "/a/b"), 5U);
    }
    for (const auto kind : {entry, xattrs, acl, space, extent}) {  // of a name in it
        EXPECT_EQ(generation_of(generations, kind, "/a/b/c"), 5U);
        EXPECT_EQ(generation_of(generations, kind, "/a/b/c/d"), 0U);
        EXPECT_EQ(generation_of(generations, kind, "/a"), 0U);
        EXPECT_EQ(generation_of(generations, kind, "/a/c"), 0U);
    }
    for (const auto kind : {directory, names, batch, xattr_batch, acl_batch}) {
        EXPECT_EQ(generation_of(generations, kind, "/a/b/c"), 0U) << "the names of another directory";
        EXPECT_EQ(generation_of(generations, kind, "/"), 0U);
    }
    for (const auto kind : {batch, xattr_batch, acl_batch}) {
        EXPECT_EQ(generation_of(generations, kind, "/a"), 5U) << "the attributes of b are in it";
    }
    for (const auto kind : {directory, names}) {
        EXPECT_EQ(generation_of(generations, kind, "/a"), 0U);
    }
    generations.add({.path = "/", .reach = Reach::one_level, .id = 7});
    EXPECT_EQ(generation_of(generations, entry, "/a"), 7U);
    EXPECT_EQ(generation_of(generations, directory, "/"), 7U);
    EXPECT_EQ(generation_of(generations, entry, "/a/b"), 5U);
}

TEST(Generations, DoNotCoverTheBytesOfAVersion) {
    Generations generations;
    generations.add({.path = "/", .id = 5});
    EXPECT_EQ(generations.of({.kind = ObjectKind::extent, .path = "/a", .version = 1}), 0U);
    EXPECT_EQ(generations.of({.kind = ObjectKind::data_map, .path = "/a", .version = 1}), 0U);
    EXPECT_EQ(generations.of({.kind = ObjectKind::extent, .path = "/a"}), 5U);  // of any version
    EXPECT_EQ(generations.of({.kind = ObjectKind::batch, .path = "/a", .version = 1}), 5U);
}

TEST(Generations, AreTheSameInAnyOrder) {
    Generations one, other;
    one.add({.path = "/a", .id = 5});
    one.add({.path = "/a/b", .id = 7});
    one.add({.path = "/a", .id = 11});
    one.add({.path = "/a/b", .reach = Reach::one_level, .id = 13});
    other.add({.path = "/a/b", .reach = Reach::one_level, .id = 13});
    other.add({.path = "/a", .id = 11});
    other.add({.path = "/a", .id = 5});
    other.add({.path = "/a/b", .id = 7});
    for (const auto* path : {"/", "/a", "/a/b", "/a/b/c"}) {
        EXPECT_EQ(generation_of(one, ObjectKind::directory, path),
                  generation_of(other, ObjectKind::directory, path));
    }
}

TEST(Generations, TakeARefreshOnce) {
    Generations generations;
    EXPECT_TRUE(generations.add({.path = "/a", .id = 5}));
    EXPECT_FALSE(generations.add({.path = "/a", .id = 5}));
    EXPECT_EQ(generation_of(generations, ObjectKind::entry, "/a"), 5U);
}

TEST(Generations, OfManyPathsAreTheSameInAnyOrder) {
    Generations one, other;
    for (std::size_t i = 0; i < 2 * Generations::paths_max; ++i) {
        one.add({.path = "/" + std::to_string(i), .id = i + 1});
        other.add({.path = "/" + std::to_string(2 * Generations::paths_max - 1 - i),
                   .id = 2 * Generations::paths_max - i});
    }
    for (const auto* path : {"/", "/1", "/100", "/other"}) {
        EXPECT_EQ(generation_of(one, ObjectKind::entry, path), generation_of(other, ObjectKind::entry, path));
    }
}

TEST(Generations, OfManyPathsCoverEverything) {
    Generations generations;
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < 10 * Generations::paths_max; ++i) {
        const std::string path = "/" + std::to_string(i);
        const auto was = generation_of(generations, ObjectKind::entry, path);
        generations.add({.path = path, .id = i + 1});
        EXPECT_NE(generation_of(generations, ObjectKind::entry, path), was);
        const auto of_others = generation_of(generations, ObjectKind::entry, "/other");
        EXPECT_GE(of_others, before);
        before = of_others;
    }
    EXPECT_GT(before, 0U);
}

}  // namespace
}  // namespace copper
