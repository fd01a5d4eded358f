#include "cache/xattr_resolver.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <vector>

#include "tests/support/directory_object.hpp"

namespace copper {
namespace {

// A cache over objects in a map; what is not there is absent (ENOENT). The filesystem does not answer at
// once.
class XattrsResolved : public testing::Test {
  protected:
    static constexpr std::uint64_t version = 7;

    XattrsResolved() {
        put_directory(test::slowly);
        for (std::size_t i = 0; i < 2; ++i) {
            objects[batch(i)] = make_object(XattrBatch());
        }
    }
    void put_directory(std::chrono::microseconds operation_time) {
        std::vector<Listing::NewEntry> entries;
        for (int i = 0; i < 1000; ++i) {
            entries.push_back({name(i), "", {.inode = 1, .mode = S_IFREG | 0644}});
        }
        objects[{.kind = ObjectKind::directory, .path = "/t/d"}] =
            make_object(test::directory_of(entries, version, operation_time));
    }
    static ObjectKey batch(std::size_t number) {
        return {ObjectKind::xattr_batch, "/t/d", static_cast<std::uint32_t>(number), version};
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
    Cache cache{{.budget_bytes = 1U << 20}, [this](const ObjectKey& key, FetchFor) {
                    ++fetched[key.kind];
                    const auto found = objects.find(key);
                    cache.deliver(key, found != objects.end() ? found->second : make_error(ENOENT));
                }};
    XattrResolver resolver{cache, trees};
};

TEST_F(XattrsResolved, ManyNamesTakeFewObjects) {
    constexpr int few = static_cast<int>(BatchEvidence::in_a_row);
    for (int i = 0; i < few; ++i) {
        put_alone(path(i), std::to_string(i));
        EXPECT_EQ(value_of(path(i)), std::to_string(i));
    }
    for (int i = few; i < 1000; ++i) {
        EXPECT_EQ(value_of(path(i)), "-");
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], few);
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 2);
    EXPECT_EQ(fetched[ObjectKind::directory], 1);
}

TEST_F(XattrsResolved, TheNextBatchIsThereBeforeItIsNeeded) {
    put_directory(test::at_once);
    for (std::uint32_t i = 0; i <= BatchEvidence::in_a_row_for_next; ++i) {
        EXPECT_EQ(fetched[ObjectKind::xattr_batch], i > 0 ? 1 : 0) << i;
        EXPECT_EQ(value_of(path(static_cast<int>(i))), "-");
    }
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 2);
    for (int i = 0; i < 1000; ++i) {
        EXPECT_EQ(value_of(path(i)), "-");
    }
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 2) << "there is no third one";
}

TEST_F(XattrsResolved, WhereTheFilesystemAnswersAtOnceABatchIsAskedForAtOnce) {
    put_directory(test::at_once);
    EXPECT_EQ(value_of(path(700)), "-");
    EXPECT_EQ(value_of(path(5)), "-");
    EXPECT_EQ(fetched[ObjectKind::xattrs], 0);
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 2);
}

TEST_F(XattrsResolved, OneNameIsAskedForAlone) {
    put_alone(path(0), "first");
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(value_of(path(0)), "first");
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], 1);
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 0);
}

TEST_F(XattrsResolved, NamesHereAndThereAreAskedForAlone) {
    for (const int i : {500, 20, 900, 40, 300, 10, 700, 60, 800, 100, 400, 200}) {
        put_alone(path(i), "alone");
        EXPECT_EQ(value_of(path(i)), "alone");
    }
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 0);
}

TEST_F(XattrsResolved, WhatABatchDoesNotTellIsAskedForAlone) {
    put_directory(test::at_once);
    put_alone(path(5), "large");
    objects[batch(0)] =
        make_object(XattrBatch{.entries = {{name(3), Xattrs{{"user.a", "small"}}}, {name(5), std::nullopt}}});
    EXPECT_EQ(value_of(path(3)), "small");
    EXPECT_EQ(value_of(path(4)), "-");
    EXPECT_EQ(value_of(path(5)), "large");
}

// The reader has other names than this node, or trouble.
TEST_F(XattrsResolved, WithoutABatchEachIsAskedForAlone) {
    put_directory(test::at_once);
    put_alone(path(4), "4");
    put_alone(path(600), "600");
    objects[batch(0)] = make_error(EAGAIN);
    objects[batch(1)] = make_error(EIO);
    EXPECT_EQ(value_of(path(4)), "4");
    EXPECT_EQ(value_of(path(600)), "600");
}

class AclsResolved : public XattrsResolved {
  protected:
    static ObjectKey alone(int i, AclType type = AclType::access) {
        return {ObjectKind::acl, path(i), static_cast<std::uint32_t>(type)};
    }
    static ObjectKey acl_batch(std::size_t number) {
        return {ObjectKind::acl_batch, "/t/d", static_cast<std::uint32_t>(number), version};
    }
    static ObjectPtr list_of(const std::string& value, AclType type = AclType::access) {
        return make_object(Xattrs{{acl_names[static_cast<std::size_t>(type)], value}});
    }
    // "-" for none.
    std::string acl_of(int i, AclType type = AclType::access) {
        std::string value;
        resolver.resolve_acl(path(i), type, [&](const XattrResolver::Resolution& xattrs) {
            value = !xattrs ? xattrs.error().message() : xattrs->empty() ? "-" : xattrs->at(0).second;
        });
        return value;
    }
};

TEST_F(AclsResolved, ManyNamesTakeFewObjects) {
    constexpr int few = static_cast<int>(BatchEvidence::in_a_row);
    for (int i = 0; i < few; ++i) {
        objects[alone(i)] = list_of(std::to_string(i));
        EXPECT_EQ(acl_of(i), std::to_string(i));
    }
    objects[acl_batch(0)] = make_object(
        XattrBatch{.entries = {{name(100), Xattrs{{acl_names[0], "100"}}}, {name(101), std::nullopt}}});
    objects[acl_batch(1)] = make_object(XattrBatch());
    objects[alone(101)] = list_of("101");
    for (int i = few; i < 1000; ++i) {
        EXPECT_EQ(acl_of(i), i == 100 || i == 101 ? std::to_string(i) : "-");
    }
    EXPECT_EQ(fetched[ObjectKind::acl], few + 1);
    EXPECT_EQ(fetched[ObjectKind::acl_batch], 2);
    EXPECT_EQ(fetched[ObjectKind::xattrs] + fetched[ObjectKind::xattr_batch], 0);
}

TEST_F(AclsResolved, AFilesystemWithoutThemSaysSoForAWholeBatch) {
    put_directory(test::at_once);
    objects[acl_batch(0)] = make_object(std::make_error_code(std::errc::not_supported));
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(acl_of(i), std::generic_category().message(EOPNOTSUPP));
    }
    EXPECT_EQ(fetched[ObjectKind::acl_batch], 1);
    EXPECT_EQ(fetched[ObjectKind::acl], 0);
    objects[acl_batch(1)] = make_error(EIO);
    objects[alone(700)] = list_of("700");
    EXPECT_EQ(acl_of(700), "700") << "other trouble of a batch is not that of each";
}

// Programs seldom want them, and only of directories.
TEST_F(AclsResolved, TheListsForNewFilesAreAskedForAlone) {
    put_directory(test::at_once);
    objects[alone(3, AclType::defaults)] = list_of("new", AclType::defaults);
    EXPECT_EQ(acl_of(3, AclType::defaults), "new");
    EXPECT_EQ(fetched[ObjectKind::acl_batch], 0);
}

TEST_F(XattrsResolved, TwoDirectoriesByTurns) {
    std::vector<Listing::NewEntry> entries;
    for (int i = 0; i < 100; ++i) {
        entries.push_back({name(i), "", {.inode = 1, .mode = S_IFREG}});
    }
    objects[{.kind = ObjectKind::directory, .path = "/t/e"}] =
        make_object(test::directory_of(entries, 8, test::slowly));
    objects[{.kind = ObjectKind::xattr_batch, .path = "/t/e", .version = 8}] =
        make_object(XattrBatch{.entries = {{name(60), Xattrs{{"user.a", "of e"}}}}});
    constexpr int few = static_cast<int>(BatchEvidence::in_a_row);
    for (int i = 0; i < 100; ++i) {
        const std::string other = "/t/e/" + name(i);
        if (i < few) {
            put_alone(path(i), "alone");
            put_alone(other, "alone too");
        }
        EXPECT_EQ(value_of(path(i)), i < few ? "alone" : "-");
        EXPECT_EQ(value_of(other), i < few ? "alone too" : i == 60 ? "of e" : "-");
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], 2 * few) << "the first names of each";
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], 2);
}

class XattrsOfHugeDirectory : public XattrsResolved {
  protected:
    static constexpr int entries = piece_entries + 600;

    XattrsOfHugeDirectory() {
        Directory directory;
        directory.version = version;
        directory.entries = entries;
        directory.operation_time = test::slowly;
        for (int begin = 0; begin < entries; begin += static_cast<int>(piece_entries)) {
            std::vector<Listing::NewEntry> names;
            for (int i = begin; i < std::min(begin + static_cast<int>(piece_entries), entries); ++i) {
                names.push_back({name(i), "", {.inode = 1, .mode = S_IFREG}});
            }
            objects[piece(directory.first_names.size())] =
                make_object(Listing(names, Listing::Detail::names_only));
            directory.first_names.push_back(name(begin));
        }
        objects[{.kind = ObjectKind::directory, .path = "/t/d"}] = make_object(directory);
        for (std::size_t i = 0; i * batch_entries < entries; ++i) {
            objects[batch(i)] = make_object(XattrBatch());
        }
    }
    static ObjectKey piece(std::size_t number) {
        return {ObjectKind::names, "/t/d", static_cast<std::uint32_t>(number), version};
    }
};

TEST_F(XattrsOfHugeDirectory, ThePositionAmongItsNamesTellsTheBatch) {
    constexpr int few = static_cast<int>(BatchEvidence::in_a_row);
    const int at = piece_entries + batch_entries + 3;
    objects[batch(at / batch_entries)] =
        make_object(XattrBatch{.entries = {{name(at), Xattrs{{"user.a", "far"}}}}});
    for (int i = 0; i < few; ++i) {
        put_alone(path(i), "alone");
    }
    for (int i = 0; i < entries; ++i) {
        ASSERT_EQ(value_of(path(i)), i < few ? "alone" : i == at ? "far" : "-") << i;
    }
    EXPECT_EQ(fetched[ObjectKind::xattrs], few);
    EXPECT_EQ(fetched[ObjectKind::xattr_batch], (entries + 511) / 512);
    EXPECT_EQ(fetched[ObjectKind::names], 2);
}

TEST_F(XattrsOfHugeDirectory, EachAloneWhereTheReaderHasOtherNames) {
    objects[batch(0)] = make_error(EAGAIN);
    objects[piece(1)] =
        make_object(test::directory_of({{"a", "", {.inode = 1, .mode = S_IFREG}}}, 8), error_lifetime);
    for (int i = 0; i < 20; ++i) {
        put_alone(path(i), "alone");
        EXPECT_EQ(value_of(path(i)), "alone");
    }
    EXPECT_GT(fetched[ObjectKind::xattr_batch], 0);
    const int of_next_piece = static_cast<int>(piece_entries) + 5;
    put_alone(path(of_next_piece), "alone");
    EXPECT_EQ(value_of(path(of_next_piece)), "alone");
    EXPECT_EQ(value_of("/t/d/absent"), std::generic_category().message(ENOENT));
}

TEST_F(XattrsResolved, EachAloneWhereTheNamesAreNotToBeHad) {
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
