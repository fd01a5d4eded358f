#include "base/path.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

TEST(Path, NormalisesSlashesAndDots) {
    EXPECT_EQ(normalise_path("/"), "/");
    EXPECT_EQ(normalise_path("//"), "/");
    EXPECT_EQ(normalise_path("/."), "/");
    EXPECT_EQ(normalise_path("//a//b/"), "/a/b");
    EXPECT_EQ(normalise_path("/a/./b/."), "/a/b");
    EXPECT_EQ(normalise_path("/.../..a"), "/.../..a");
    EXPECT_EQ(normalise_path("/\xff\n "), "/\xff\n ");
}

TEST(Path, RefusesWhatTextCannotResolve) {
    using std::string_view_literals::operator""sv;
    EXPECT_FALSE(normalise_path(""));
    EXPECT_FALSE(normalise_path("a"));
    EXPECT_FALSE(normalise_path("/a/../b"));
    EXPECT_FALSE(normalise_path("/.."));
    EXPECT_FALSE(normalise_path("/a\0b"sv));
    EXPECT_FALSE(normalise_path('/' + std::string(name_bytes_max + 1, 'a')));
    EXPECT_TRUE(normalise_path('/' + std::string(name_bytes_max, 'a')));
}

TEST(Path, RefusesTheTooLong) {
    std::string path;
    while (path.size() + 2 < path_bytes_max) {
        path += "/a";
    }
    EXPECT_TRUE(normalise_path(path));
    EXPECT_FALSE(normalise_path(path + "/a"));
    EXPECT_TRUE(normalise_path(path + "//")) << "the length counts once it is normalised";
}

TEST(Path, KnowsTheNormalised) {
    EXPECT_TRUE(is_normalised_path("/"));
    EXPECT_TRUE(is_normalised_path("/a/b"));
    EXPECT_FALSE(is_normalised_path("/a/"));
    EXPECT_FALSE(is_normalised_path("//a"));
    EXPECT_FALSE(is_normalised_path("a"));
}

TEST(Path, ValidNames) {
    using std::string_view_literals::operator""sv;
    EXPECT_TRUE(is_valid_name("..."));
    EXPECT_TRUE(is_valid_name("\xff"));
    EXPECT_FALSE(is_valid_name(""));
    EXPECT_FALSE(is_valid_name("."));
    EXPECT_FALSE(is_valid_name(".."));
    EXPECT_FALSE(is_valid_name("a/b"));
    EXPECT_FALSE(is_valid_name("a\0"sv));
}

TEST(Path, ParentAndName) {
    EXPECT_EQ(parent_path("/a/b"), "/a");
    EXPECT_EQ(parent_path("/a"), "/");
    EXPECT_EQ(parent_path("/"), "/");
    EXPECT_EQ(base_name("/a/b"), "b");
    EXPECT_EQ(base_name("/"), "");
    EXPECT_EQ(join_path("/", "a"), "/a");
    EXPECT_EQ(join_path("/a", "b"), "/a/b");
}

TEST(Path, WithinStopsAtComponents) {
    EXPECT_TRUE(is_within("/a", "/a"));
    EXPECT_TRUE(is_within("/a/b", "/a"));
    EXPECT_TRUE(is_within("/a", "/"));
    EXPECT_TRUE(is_within("/", "/"));
    EXPECT_FALSE(is_within("/ab", "/a"));
    EXPECT_FALSE(is_within("/", "/a"));
}

}  // namespace
}  // namespace copper
