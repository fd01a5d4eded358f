#include "cache/resolve.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
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
    objects[{.kind = ObjectKind::directory, .path = "/tree"}] =
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

// Of a number, so that the names sort like numbers.
std::string number(std::size_t i) {
    return std::to_string(10000000 + i);
}

class ResolveHuge : public Resolve {
  protected:
    // A directory with the names of the numbers from `first` on.
    ObjectPtr put(std::uint64_t version, std::size_t first, std::size_t count) {
        Directory index{.version = version, .entries = count, .first_names = {}};
        for (std::size_t begin = 0; begin < count; begin += piece_entries) {
            index.first_names.push_back(number(first + begin));
            std::vector<Listing::NewEntry> names;
            for (std::size_t i = begin; i < std::min(begin + piece_entries, count); ++i) {
                names.push_back(file(number(first + i), 0));
            }
            objects[piece(begin / piece_entries, version)] =
                make_object(Listing(names, Listing::Detail::names_only));
        }
        return make_object(index);
    }
    static ObjectKey piece(std::size_t index, std::uint64_t version) {
        return {ObjectKind::names, "/tree", static_cast<std::uint32_t>(index), version};
    }
    static ObjectKey batch(std::size_t index, std::uint64_t version) {
        return {ObjectKind::batch, "/tree", static_cast<std::uint32_t>(index), version};
    }
    bool is_present(const std::string& name) {
        const auto found = resolve("/tree", name);
        EXPECT_TRUE(found);
        return found && found->has_value();
    }
    void put_entry(const std::string& name, std::uint64_t inode) {
        objects[{ObjectKind::entry, "/tree/" + name}] =
            make_object(Listing({file(name, inode)}, Listing::Detail::attributes));
    }

    const ObjectKey directory{ObjectKind::directory, "/tree"};
    static ObjectPtr for_now(const ObjectPtr& object) { return make_object(object->content, error_lifetime); }
};

TEST_F(ResolveHuge, TheRightPieceAndTheRightBatchAnswer) {
    objects[directory] = put(7, 0, 3 * piece_entries);
    const std::string name = number(piece_entries + batch_entries + 3);
    const std::size_t right_batch = piece_entries / batch_entries + 1;
    objects[batch(right_batch, 7)] = make_object(Listing({file(name, 77)}, Listing::Detail::attributes));
    const auto found = resolve("/tree", name);
    ASSERT_TRUE(found && *found);
    EXPECT_EQ((*found)->attributes.inode, 77U);
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(piece(1, 7)),
                                                 to_string(batch(right_batch, 7))}));
}

TEST_F(ResolveHuge, AnAbsentNameCostsAPieceAtMost) {
    objects[directory] = put(7, 0, 3 * piece_entries);
    EXPECT_FALSE(is_present("0")) << "before all others";
    EXPECT_EQ(fetched, std::vector<std::string>{to_string(directory)});
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(is_present(number(piece_entries) + "." + std::to_string(i)));
        EXPECT_FALSE(is_present("z" + std::to_string(i))) << "after all others";
    }
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(piece(1, 7)),
                                                 to_string(piece(2, 7))}));
}

TEST_F(ResolveHuge, WhatABatchLacksIsAskedForItself) {
    objects[directory] = put(7, 0, 10);
    objects[batch(0, 7)] = make_object(Listing({}, Listing::Detail::attributes));
    objects[{ObjectKind::entry, "/tree/" + number(3)}] = make_error(EACCES);
    const auto result = resolve("/tree", number(3));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), std::errc::permission_denied);
}

// Nobody has the names of version 7 any more.
TEST_F(ResolveHuge, ADirectoryThatHasOtherNamesByNowIsAskedAnew) {
    objects[directory] = put(7, 0, 3 * piece_entries);
    const ObjectPtr now = put(8, 1, 3 * piece_entries);
    objects[piece(0, 7)] = for_now(now);
    objects[batch(0, 8)] = make_object(Listing({file(number(5), 55)}, Listing::Detail::attributes));
    EXPECT_FALSE(is_present(number(0))) << "it is gone";
    EXPECT_EQ((*resolve("/tree", number(5)))->attributes.inode, 55U);
    EXPECT_EQ(cache.find(directory)->directory()->version, 8U);
    EXPECT_FALSE(cache.find(directory)->lifetime) << "and so it is from now on";
    EXPECT_EQ(std::count(fetched.begin(), fetched.end(), to_string(directory)), 1);
}

TEST_F(ResolveHuge, ADirectoryThatIsSmallByNow) {
    objects[directory] = put(7, 0, 3 * piece_entries);
    objects[piece(0, 7)] = for_now(make_object(Listing({file(number(5), 55)}, Listing::Detail::attributes)));
    EXPECT_FALSE(is_present(number(4)));
    EXPECT_EQ((*resolve("/tree", number(5)))->attributes.inode, 55U);
    EXPECT_NE(cache.find(directory)->listing(), nullptr);
}

// The last word is the entry's own: a name is never called absent because its piece is not to be had.
TEST_F(ResolveHuge, WithoutAPieceTheEntryIsAsked) {
    const std::string name = number(5);
    put_entry(name, 55);
    objects[directory] = put(7, 0, 3 * piece_entries);
    objects[piece(0, 7)] = make_error(ESTALE);
    EXPECT_TRUE(is_present(name));
    cache.drop("/");
    objects[piece(0, 7)] = make_object(Listing({file(number(0), 0)}, Listing::Detail::names_only));
    EXPECT_TRUE(is_present(name)) << "a piece that is too short";
    cache.drop("/");
    objects[piece(0, 7)] = objects[piece(1, 7)];
    EXPECT_TRUE(is_present(name)) << "another piece";
    EXPECT_FALSE(resolve("/tree", number(6)).has_value()) << "the entry's own error";
}

TEST_F(ResolveHuge, TwoVersionsThatReplaceEachOtherEnd) {
    const std::string name = number(5);
    put_entry(name, 55);
    const ObjectPtr seven = put(7, 0, 3 * piece_entries);
    const ObjectPtr eight = put(8, 0, 3 * piece_entries - 1);
    objects[directory] = seven;
    objects[piece(0, 7)] = for_now(eight);
    objects[piece(0, 8)] = for_now(seven);
    EXPECT_TRUE(is_present(name));
}

TEST_F(Resolve, ADirectoryThatMayOnlyBeSearched) {
    objects[{.kind = ObjectKind::directory, .path = "/tree"}] = make_error(EACCES);
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
    objects[{.kind = ObjectKind::directory, .path = "/tree"}] = make_error(ESTALE);
    const auto result = resolve("/tree", "a");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().value(), ESTALE);
}

}  // namespace
}  // namespace copper
