#include "cache/xattr_resolver.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <vector>

namespace copper {
namespace {

// A cache over objects in a map; what is not there is absent (ENOENT).
class XattrsResolved : public testing::Test {
  protected:
    XattrsResolved() {
        std::vector<Listing::NewEntry> entries;
        for (int i = 0; i < 1000; ++i) {
            entries.push_back({name(i), "", {.inode = 1, .mode = S_IFREG | 0644}});
        }
        const Listing listing(entries, Listing::Detail::attributes);
        objects[{.kind = ObjectKind::directory, .path = "/t/d"}] = make_object(listing);
        for (std::uint32_t batch = 0; batch < 2; ++batch) {
            objects[{.kind = ObjectKind::xattr_batch, .path = "/t/d", .index = batch}] =
                make_object(XattrBatch{.names = names_hash(listing, batch), .entries = {}});
        }
    }
    static std::string name(int i) { return "f" + std::to_string(1000 + i); }
    static std::string path(int i) { return "/t/d/" + name(i); }

    void put_alone(const std::string& where, const std::string& value) {
        objects[{.kind = ObjectKind::xattrs, .path = where}] = make_object(Xattrs{{"user.a", value}});
    }
    // "-" for none.
    std::string value_of(const std::string& where) {
        std::string value;
        resolver.resolve(where, [&](const XattrResolver::Resolution& xattrs) {
            value = !xattrs ? xattrs.error().message() : xattrs->empty() ? "-" : xattrs->at(0).second;
        });
        return value;
    }

    std::map<ObjectKey, ObjectPtr> objects;
    std::map<ObjectKind, int> fetched;
    Trees trees{{"/t"}};
    Cache cache{{.budget_bytes = 1U << 20}, [this](const ObjectKey& key) {
                    ++fetched[key.kind];
                    const auto found = objects.find(key);
                    cache.deliver(key, found != objects.end() ? found->second : make_error(ENOENT));
                }};
    XattrResolver resolver{cache, trees};
};

TEST_F(XattrsResolved, ManyNamesTakeFewObjects) {
    put_alone(path(0), "first");
    EXPECT_EQ(value_of(path(0)), "first");
    for (int i = 1; i < 1000; ++i) {
        EXPECT_EQ(value_of(path(i)), "-");
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], 1);
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 2);
    EXPECT_EQ(fetched[ObjectKind::directory], 1);
}

TEST_F(XattrsResolved, OneNameIsAskedForAlone) {
    put_alone(path(0), "first");
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(value_of(path(0)), "first");
    }
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 0);
}

TEST_F(XattrsResolved, WhatABatchDoesNotTellIsAskedForAlone) {
    put_alone(path(5), "large");
    XattrBatch batch = *objects[{.kind = ObjectKind::xattr_batch, .path = "/t/d"}]->xattr_batch();
    batch.entries = {{name(3), Xattrs{{"user.a", "small"}}}, {name(5), std::nullopt}};
    objects[{.kind = ObjectKind::xattr_batch, .path = "/t/d"}] = make_object(batch);
    value_of(path(0));
    EXPECT_EQ(value_of(path(3)), "small");
    EXPECT_EQ(value_of(path(4)), "-");
    EXPECT_EQ(value_of(path(5)), "large");
}

// The reader's Listing is another one than this node's.
TEST_F(XattrsResolved, ABatchOfOtherNamesTellsNothing) {
    put_alone(path(4), "4");
    objects[{.kind = ObjectKind::xattr_batch, .path = "/t/d"}] =
        make_object(XattrBatch{.names = 1, .entries = {{name(4), Xattrs()}}});
    value_of(path(0));
    EXPECT_EQ(value_of(path(4)), "4");
    objects[{.kind = ObjectKind::xattr_batch, .path = "/t/d", .index = 1}] = make_error(EIO);
    put_alone(path(600), "600");
    EXPECT_EQ(value_of(path(600)), "600");
}

TEST_F(XattrsResolved, TwoDirectoriesByTurns) {
    const Listing other({{"a", "", {.inode = 1, .mode = S_IFREG}}, {"b", "", {.inode = 2, .mode = S_IFREG}}},
                        Listing::Detail::attributes);
    objects[{.kind = ObjectKind::directory, .path = "/t/e"}] = make_object(other);
    objects[{.kind = ObjectKind::xattr_batch, .path = "/t/e"}] = make_object(
        XattrBatch{.names = names_hash(other, 0), .entries = {{"b", Xattrs{{"user.a", "of b"}}}}});
    value_of(path(0));
    value_of("/t/e/a");
    for (int i = 1; i < 5; ++i) {
        EXPECT_EQ(value_of(path(i)), "-");
        EXPECT_EQ(value_of("/t/e/b"), "of b");
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], 2) << "the first name of each";
}

class XattrsOfHugeDirectory : public XattrsResolved {
  protected:
    static constexpr std::uint64_t version = 7;
    static constexpr int entries = piece_entries + 600;

    XattrsOfHugeDirectory() {
        Directory index{.version = version, .entries = entries, .first_names = {}};
        for (int begin = 0; begin < entries; begin += static_cast<int>(piece_entries)) {
            std::vector<Listing::NewEntry> names;
            for (int i = begin; i < std::min(begin + static_cast<int>(piece_entries), entries); ++i) {
                names.push_back({name(i), "", {.inode = 1, .mode = S_IFREG}});
            }
            objects[piece(index.first_names.size())] =
                make_object(Listing(names, Listing::Detail::names_only));
            index.first_names.push_back(name(begin));
        }
        objects[{.kind = ObjectKind::directory, .path = "/t/d"}] = make_object(index);
        for (std::size_t i = 0; i * batch_entries < entries; ++i) {
            objects[batch(i)] = make_object(XattrBatch{.names = version, .entries = {}});
        }
    }
    static ObjectKey piece(std::size_t index) {
        return {ObjectKind::names, "/t/d", static_cast<std::uint32_t>(index), version};
    }
    static ObjectKey batch(std::size_t index) {
        return {ObjectKind::xattr_batch, "/t/d", static_cast<std::uint32_t>(index), version};
    }
};

TEST_F(XattrsOfHugeDirectory, ThePositionInTheIndexTellsTheBatch) {
    const int at = piece_entries + batch_entries + 3;
    objects[batch(at / batch_entries)] =
        make_object(XattrBatch{.names = version, .entries = {{name(at), Xattrs{{"user.a", "far"}}}}});
    put_alone(path(0), "first");
    EXPECT_EQ(value_of(path(0)), "first");
    EXPECT_EQ(value_of(path(at)), "far");
    for (int i = 1; i < entries; ++i) {
        EXPECT_EQ(value_of(path(i)), i == at ? "far" : "-");
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], 1);
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], (entries + 511) / 512);
    EXPECT_EQ(fetched[ObjectKind::names], 2);
}

TEST_F(XattrsOfHugeDirectory, EachAloneWhereTheReaderHasOtherNames) {
    objects[batch(0)] = make_object(XattrBatch(), error_lifetime);
    objects[piece(1)] =
        make_object(Directory{.version = 8, .entries = 1, .first_names = {"a"}}, error_lifetime);
    value_of(path(0));
    for (const int i : {5, static_cast<int>(piece_entries) + 5}) {
        put_alone(path(i), "alone");
        EXPECT_EQ(value_of(path(i)), "alone");
    }
    EXPECT_EQ(value_of("/t/d/absent"), std::generic_category().message(ENOENT));
}

TEST_F(XattrsResolved, EachAloneWhereThereIsNoListing) {
    for (const std::string directory : {"/outside", "/t/secret", "/"}) {
        for (const std::string file : {"a", "b", "c"}) {
            const std::string where = (directory == "/" ? "" : directory) + "/" + file;
            put_alone(where, where);
            EXPECT_EQ(value_of(where), where);
        }
    }
    put_alone("/", "root");
    EXPECT_EQ(value_of("/"), "root");
    put_alone("/t", "tree");
    EXPECT_EQ(value_of("/t"), "tree") << "its name stands outside";
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 0);
    EXPECT_EQ(value_of("/t/d/absent"), std::generic_category().message(ENOENT));
    EXPECT_EQ(value_of("/t/d/also absent"), std::generic_category().message(ENOENT));
}

}  // namespace
}  // namespace copper
