#include "cache/object.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

namespace copper {
namespace {

Listing::NewEntry entry(std::string name, std::uint64_t inode, std::string target = {}) {
    return {.name = std::move(name), .target = std::move(target), .attributes = {.inode = inode}};
}

TEST(Listing, IsSortedByBytesAndFindsEachName) {
    const Listing listing(
        {entry("b", 1), entry("\xff\xfe", 2), entry("a\nb", 3), entry("B", 4), entry("link", 5, "/t")},
        Listing::Detail::attributes);
    ASSERT_EQ(listing.size(), 5U);
    const std::vector<std::string_view> sorted = {"B", "a\nb", "b", "link", "\xff\xfe"};
    const std::vector<std::uint64_t> inodes = {4, 3, 1, 5, 2};
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        EXPECT_EQ(listing.at(i).name, sorted[i]);
        EXPECT_EQ(listing.at(i).attributes.inode, inodes[i]);
        EXPECT_EQ(listing.find(sorted[i]), i);
    }
    EXPECT_EQ(listing.at(3).target, "/t");
    EXPECT_EQ(listing.at(2).target, "");
    EXPECT_TRUE(listing.has_attributes());
}

TEST(Listing, DoesNotFindWhatIsAbsent) {
    const Listing listing({entry("b", 1), entry("d", 2)}, Listing::Detail::names_only);
    for (const auto* name : {"", "a", "c", "e", "bb", "b/"}) {
        EXPECT_FALSE(listing.find(name)) << name;
    }
    EXPECT_FALSE(listing.has_attributes());
    EXPECT_FALSE(Listing({}, Listing::Detail::attributes).find("a"));
}

TEST(Listing, CarriesTheLongestNameAndTarget) {
    const std::string name(255, 'n');
    const std::string target(4095, 't');
    const Listing listing({entry(name, 1, target), entry("z", 2, "x")}, Listing::Detail::attributes);
    EXPECT_EQ(listing.at(0).name, name);
    EXPECT_EQ(listing.at(0).target, target);
    EXPECT_EQ(listing.at(1).target, "x");
}

TEST(Listing, BytesCoverTextAndAttributes) {
    std::vector<Listing::NewEntry> entries;
    for (int i = 0; i < 1000; ++i) {
        entries.push_back(entry("name" + std::to_string(i), 1));
    }
    const Listing listing(entries, Listing::Detail::attributes);
    EXPECT_GE(listing.bytes(), 1000 * (sizeof(Attributes) + 5));
    EXPECT_LT(listing.bytes(), 1000 * (sizeof(Attributes) + 64));
}

TEST(Listing, WithoutAttributesItKeepsNamesInodesAndTypesAlone) {
    const Listing listing({{.name = "link",
                            .target = "/t",
                            .attributes = {.inode = 5, .size = 2, .mode = S_IFLNK | 0777, .links = 1},
                            .leads_into_trees = true}},
                          Listing::Detail::names_only);
    EXPECT_EQ(listing.at(0).name, "link");
    EXPECT_EQ(listing.at(0).target, "");
    EXPECT_FALSE(listing.at(0).leads_into_trees);
    EXPECT_EQ(listing.at(0).attributes, (Attributes{.inode = 5, .mode = S_IFLNK}));
}

TEST(Listing, BytesWithoutAttributesAreFew) {
    std::vector<Listing::NewEntry> entries;
    for (int i = 0; i < 1000; ++i) {
        entries.push_back(entry("name" + std::to_string(i), 1));
    }
    const Listing listing(entries, Listing::Detail::names_only);
    EXPECT_GE(listing.bytes(), 1000U * (8 + 4 + 5));
    EXPECT_LT(listing.bytes(), 1000U * 40);
}

TEST(Directory, BytesCountItsNames) {
    Directory directory;
    const std::size_t empty = directory.bytes();
    std::vector<Listing::NewEntry> entries;
    for (int i = 0; i < 1000; ++i) {
        entries.push_back(entry("name" + std::to_string(i), 1));
    }
    directory.entries = entries.size();
    directory.names = Listing(entries, Listing::Detail::names_only);
    EXPECT_GE(directory.bytes(), empty + 1000U * (8 + 4 + 5));
    directory.first_names = {std::string(200, 'x')};
    EXPECT_GE(directory.bytes(), directory.names.bytes() + 200);
    EXPECT_GE(make_object(directory)->bytes(), directory.bytes() + sizeof(Object));
}

TEST(Object, BytesCountTheContent) {
    const std::vector<std::byte> bytes(1000);
    const auto extent = make_object(Extent{.attributes = {}, .blob = copy_to_blob(bytes)});
    EXPECT_GE(extent->bytes(), 1000U);
    EXPECT_LT(extent->bytes(), 1000U + 2 * sizeof(Object));
    const auto xattrs = make_object(Xattrs{{"user.a", std::string(500, 'v')}});
    EXPECT_GE(xattrs->bytes(), 506U);
    const auto batch = make_object(XattrBatch{.entries = {{"a", Xattrs{{"user.a", std::string(500, 'v')}}}}});
    EXPECT_GE(batch->bytes(), 507U);
    EXPECT_GE(make_error(EIO)->bytes(), sizeof(Object));
}

TEST(Object, ErrorsAreShortLivedContent) {
    const auto error = make_error(EACCES);
    EXPECT_EQ(error->error(), std::errc::permission_denied);
    EXPECT_EQ(error->lifetime, error_lifetime);
    EXPECT_EQ(error->listing(), nullptr);
    const auto listing = make_object(Listing({}, Listing::Detail::attributes));
    EXPECT_FALSE(listing->error());
    EXPECT_FALSE(listing->lifetime);
    EXPECT_NE(listing->listing(), nullptr);
    EXPECT_EQ(listing->directory(), nullptr);
    EXPECT_EQ(listing->extent(), nullptr);
    EXPECT_EQ(listing->xattrs(), nullptr);
}

TEST(Object, BlobIsACopy) {
    std::vector<std::byte> bytes = {std::byte{1}, std::byte{2}};
    const auto blob = copy_to_blob(bytes);
    bytes[0] = std::byte{9};
    ASSERT_EQ(blob.span().size(), 2U);
    EXPECT_EQ(blob.span()[0], std::byte{1});
    EXPECT_EQ(copy_to_blob({}).span().size(), 0U);
}

TEST(Object, VersionIgnoresWhatDoesNotChangeTheBytes) {
    const Attributes one{.inode = 1, .size = 2, .modified = {.seconds = 3}, .changed = {.seconds = 4}};
    auto other = one;
    other.accessed.seconds = 99;
    EXPECT_EQ(version_of(one), version_of(other));
    other.changed.nanoseconds = 1;
    EXPECT_NE(version_of(one), version_of(other));
}

TEST(DataMap, TellsWhatComesNext) {
    const DataMap map{.attributes = {.size = 100}, .segments = {{0, 10}, {20, 30}, {50, 60}}};
    struct Place {
        std::uint64_t from, data, hole;
    };
    for (const Place& place : {Place{0, 0, 10}, Place{9, 9, 10}, Place{10, 20, 10}, Place{19, 20, 19},
                               Place{20, 20, 30}, Place{30, 50, 30}, Place{59, 59, 60}, Place{60, 100, 60},
                               Place{99, 100, 99}, Place{200, 100, 100}}) {
        EXPECT_EQ(map.data_from(place.from), place.data) << place.from;
        EXPECT_EQ(map.hole_from(place.from), place.hole) << place.from;
    }
    const DataMap hole{.attributes = {.size = 100}, .segments = {}};
    EXPECT_EQ(hole.data_from(0), 100U);
    EXPECT_EQ(hole.hole_from(7), 7U);
}

TEST(DataMap, TellsWhichExtentsHaveData) {
    const DataMap map{
        .attributes = {.size = 5 * extent_bytes + 10},
        .segments = {{extent_bytes - 1, extent_bytes}, {3 * extent_bytes, 4 * extent_bytes + 1}}};
    const bool expected[] = {true, false, false, true, true, false, false};
    for (std::uint32_t extent = 0; extent < std::size(expected); ++extent) {
        EXPECT_EQ(map.has_data(extent), expected[extent]) << extent;
    }
}

TEST(Attributes, TellHowMuchOfAFileIsNotAllocated) {
    EXPECT_EQ(bytes_not_allocated({.size = 0, .blocks = 0}), 0U);
    EXPECT_EQ(bytes_not_allocated({.size = 1, .blocks = 0}), 1U);
    EXPECT_EQ(bytes_not_allocated({.size = 513, .blocks = 1}), 1U);
    EXPECT_EQ(bytes_not_allocated({.size = 513, .blocks = 2}), 0U);
    EXPECT_EQ(bytes_not_allocated({.size = 512, .blocks = UINT64_MAX}), 0U);
}

TEST(ObjectKey, FileTreeIsTheDirectory) {
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::directory, .path = "/a/b"}), "/a/b");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::names, .path = "/a/b", .index = 3}), "/a/b");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::batch, .path = "/a/b", .index = 3}), "/a/b");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::entry, .path = "/a/b"}), "/a");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::extent, .path = "/a/b", .index = 7}), "/a");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::data_map, .path = "/a/b"}), "/a");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::xattrs, .path = "/a"}), "/");
    EXPECT_EQ(file_tree_of({.kind = ObjectKind::xattr_batch, .path = "/a"}), "/a");
}

TEST(ObjectKey, HashTellsKindPathAndIndexApart) {
    std::set<std::uint64_t> hashes;
    for (const auto kind :
         {ObjectKind::directory, ObjectKind::batch, ObjectKind::entry, ObjectKind::extent}) {
        for (const auto* path : {"/a", "/b"}) {
            for (const std::uint32_t index : {0U, 1U, 0xffffffffU}) {
                hashes.insert(hash_of({.kind = kind, .path = path, .index = index}));
            }
        }
    }
    EXPECT_EQ(hashes.size(), 24U);
}

TEST(ObjectKey, HashTellsVersionsApart) {
    const Version version{.inode = 1, .size = 2, .modified = {3, 4}, .changed = {5, 6}};
    std::set<std::uint64_t> hashes{hash_of(version)};
    std::set<std::uint64_t> keys;
    for (auto part : {&Version::inode, &Version::size}) {
        Version other = version;
        other.*part = 7;
        hashes.insert(hash_of(other));
    }
    for (auto part : {&Version::modified, &Version::changed}) {
        Version other = version;
        (other.*part).nanoseconds = 7;
        hashes.insert(hash_of(other));
    }
    EXPECT_EQ(hashes.size(), 5U);
    for (const auto hash : hashes) {
        keys.insert(hash_of({.kind = ObjectKind::extent, .path = "/a", .version = hash}));
    }
    EXPECT_EQ(keys.size(), 5U);
}

TEST(ObjectKey, HashIsTheSameOnEveryNode) {
    EXPECT_EQ(hash_of({.kind = ObjectKind::directory, .path = "/lus/a"}), 7448185129859378143U)
        << "elections depend on it";
}

TEST(ObjectKey, Text) {
    EXPECT_EQ(to_string({.kind = ObjectKind::extent, .path = "/a", .index = 2}), "extent /a#2");
}

}  // namespace
}  // namespace copper
