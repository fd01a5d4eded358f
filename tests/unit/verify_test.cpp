#include "wire/verify.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>

#include "cache/codec.hpp"
#include "tests/support/directory_object.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

const Trees trees({"/lus/sw", "/home/me"});
const Job job{.nodes = 8, .trees = trees};

const ObjectKey file{ObjectKind::extent, "/lus/sw/lib.so"};
const ObjectKey directory{ObjectKind::directory, "/lus/sw"};
const ObjectKey batch{ObjectKind::batch, "/lus/sw", 3, 7};

Attributes attributes(std::uint32_t mode, std::uint64_t size = 0) {
    return {.inode = 1, .size = size, .mode = mode, .links = 1};
}

ObjectPtr extent_of(std::size_t bytes, std::uint64_t file_bytes, std::uint32_t mode = S_IFREG | 0644,
                    std::optional<std::chrono::milliseconds> lifetime = std::nullopt) {
    return make_object(Extent{attributes(mode, file_bytes), copy_to_blob(std::vector<std::byte>(bytes))},
                       lifetime);
}

ObjectPtr listing_of(std::vector<Listing::NewEntry> entries,
                     Listing::Detail detail = Listing::Detail::attributes) {
    return make_object(Listing(std::move(entries), detail));
}

Listing::NewEntry entry(std::string name, std::uint32_t mode = S_IFREG | 0644, std::string target = {}) {
    return {.name = std::move(name), .target = std::move(target), .attributes = attributes(mode)};
}

std::vector<Listing::NewEntry> many(std::size_t count) {
    std::vector<Listing::NewEntry> entries;
    for (std::size_t i = 0; i < count; ++i) {
        entries.push_back(entry(std::to_string(i)));
    }
    return entries;
}

Publication publication(ObjectKey key, ObjectPtr object) {
    return {.key = std::move(key), .root = Rank{7}, .object = std::move(object)};
}

void expect_accepted(const Message& message, const std::string& what = "") {
    const auto result = verified(message, job);
    EXPECT_TRUE(result) << what << (result ? "" : result.error().reason);
}

// Which publication it was is known, so whoever waits for it can ask again.
void expect_corrupt(const ObjectKey& key, ObjectPtr object, const std::string& what = "") {
    Publication corrupt = publication(key, std::move(object));
    corrupt.lane = Lane::bulk;
    corrupt.sequence = 17;
    const auto result = verified(std::move(corrupt), job);
    ASSERT_FALSE(result) << what;
    ASSERT_TRUE(result.error().damaged) << what;
    EXPECT_EQ(result.error().damaged->key, key) << what;
    EXPECT_EQ(result.error().damaged->lane, Lane::bulk) << what;
    EXPECT_EQ(result.error().damaged->sequence, 17U) << what;
}

void expect_refused(const Message& message, const std::string& what = "") {
    const auto result = verified(message, job);
    ASSERT_FALSE(result) << what;
    EXPECT_FALSE(result.error().damaged) << what;
    EXPECT_FALSE(result.error().reason.empty());
}

TEST(Verify, NodesThatThereAreNot) {
    const std::vector<News> known = {{.rank = Rank{7}}, {.rank = Rank{0}, .state = NodeState::dead}};
    const std::vector<News> unknown = {{.rank = Rank{7}}, {.rank = Rank{8}}};
    expect_accepted(Interest{.key = file, .origin = Rank{7}, .news = known});
    expect_refused(Interest{.key = file, .origin = Rank{7}, .news = unknown});
    expect_accepted(Interest{.key = file, .findings = {{Rank{0}, EIO}, {Rank{7}, EIO}}});
    expect_refused(Interest{.key = file, .findings = {{Rank{0}, EIO}, {Rank{8}, EIO}}});
    expect_refused(Interest{.key = file, .origin = Rank{8}});
    expect_refused(Interest{.key = file, .origin = Rank{UINT32_MAX}});

    Publication object = publication(file, extent_of(5, 5));
    expect_accepted(object);
    object.news = unknown;
    expect_refused(object);
    object.news = known;
    expect_accepted(object);
    object.root = Rank{8};
    expect_refused(object);

    expect_accepted(Call{.id = 1, .origin = Rank{7}, .verb = "stop", .argument = ""});
    expect_refused(Call{.id = 1, .origin = Rank{8}, .verb = "stop", .argument = ""});
    expect_accepted(Answer{.id = 1, .origin = Rank{7}, .parts = {{Rank{0}, ""}, {Rank{7}, ""}}});
    expect_refused(Answer{.id = 1, .origin = Rank{7}, .parts = {{Rank{0}, ""}, {Rank{8}, ""}}});
    expect_refused(Answer{.id = 1, .origin = Rank{8}, .parts = {}});
    expect_accepted(Answer{.id = 1, .origin = Rank{7}, .parts = {{Rank{0}, "", {Rank{1}, Rank{7}}}}});
    expect_refused(Answer{.id = 1, .origin = Rank{7}, .parts = {{Rank{0}, "", {Rank{1}, Rank{8}}}}});
    expect_accepted(Working{.key = file});
    expect_accepted(Ping{.news = known});
    expect_refused(Ping{.news = unknown});
    expect_accepted(Pong{.news = known});
    expect_refused(Pong{.news = unknown});
}

TEST(Verify, TreesThatThereAreNot) {
    Publication object = publication(file, extent_of(5, 5));
    for (const std::uint32_t nodes : {1U, 8U, 100U}) {
        const Job of_nodes{.nodes = nodes, .trees = trees};
        object.root = Rank{0};
        object.tree = std::min(nodes, trees_max) - 1;
        EXPECT_TRUE(verified(object, of_nodes)) << nodes;
        ++object.tree;
        EXPECT_FALSE(verified(object, of_nodes)) << nodes;
    }
}

TEST(Verify, ObjectsOutsideTheTrees) {
    for (const char* path : {"/", "/lus", "/lus/swap", "/etc/passwd", "/home", "/home/me2/x"}) {
        for (const ObjectKind kind : {ObjectKind::directory, ObjectKind::entry, ObjectKind::extent}) {
            const ObjectKey key{kind, path};
            if (kind == ObjectKind::entry && trees.is_on_the_way(path)) {
                expect_accepted(Interest{.key = key}, path);
                continue;
            }
            expect_refused(Interest{.key = key}, path);
            expect_refused(Decline{.key = key}, path);
            expect_refused(Working{.key = key}, path);
            expect_refused(publication(key, make_error(std::errc::no_such_file_or_directory)), path);
        }
    }
    expect_refused(Decline{.key = {ObjectKind::extent, "/home/me/x"}, .found = Finding{Rank{99}, EIO}},
                   "a finding of an unknown node");
    expect_accepted(Decline{.key = {ObjectKind::extent, "/home/me/x"}});
    expect_refused(Interest{.key = {ObjectKind::own_extent, "/home/me/x"}});
}

TEST(Verify, AnExtentHasAsManyBytesAsItsFileSays) {
    const auto key = [](std::uint32_t index) { return ObjectKey{file.kind, file.path, index}; };
    expect_accepted(publication(key(0), extent_of(0, 0)));
    expect_accepted(publication(key(0), extent_of(300, 300)));
    expect_accepted(publication(key(0), extent_of(extent_bytes, 3 * extent_bytes + 1)));
    expect_accepted(publication(key(3), extent_of(1, 3 * extent_bytes + 1)));
    expect_accepted(publication(key(4), extent_of(0, 3 * extent_bytes + 1)));
    expect_accepted(publication(key(UINT32_MAX), extent_of(0, 300)));
    expect_corrupt(key(0), extent_of(299, 300), "short");
    expect_corrupt(key(0), extent_of(301, 300), "long");
    expect_corrupt(key(3), extent_of(2, 3 * extent_bytes + 1), "beyond the end");
    expect_corrupt(key(4), extent_of(1, 3 * extent_bytes + 1), "after the end");
    expect_corrupt(key(1), extent_of(300, 300), "another extent's");
    expect_corrupt(key(0), extent_of(0, UINT64_MAX), "a size that no file has");
    // A file in the making.
    expect_accepted(publication(key(0), extent_of(299, 300, S_IFREG, 0ms)));
    expect_corrupt(key(0), extent_of(300, 300, S_IFDIR | 0755), "of a directory");
    expect_corrupt(key(0), extent_of(300, 300, 0644), "of nothing");
}

TEST(Verify, CodedExtentsCountAsWhatTheyDecodeTo) {
    Extent extent{attributes(S_IFREG, 1000), lz4_coded(std::vector<std::byte>(1000)).value(), Coding::lz4,
                  1000};
    expect_accepted(publication(file, make_object(extent)));
    extent.attributes.size = 1001;
    expect_corrupt(file, make_object(extent));
}

TEST(Verify, ExtentsOfZerosAreAsLongAsTheirFileSays) {
    Extent extent{attributes(S_IFREG, 1000), {}, Coding::zeros, 1000};
    expect_accepted(publication(file, make_object(extent)));
    extent.attributes.size = 1001;
    expect_corrupt(file, make_object(extent));
}

TEST(Verify, SegmentsOfAFileAreInOrderAndWithinIt) {
    const ObjectKey key{ObjectKind::data_map, file.path};
    const auto map = [](std::vector<DataMap::Segment> segments, std::uint32_t mode = S_IFREG) {
        return make_object(DataMap{.attributes = attributes(mode, 1000), .segments = std::move(segments)});
    };
    expect_accepted(publication(key, map({})));
    expect_accepted(publication(key, map({{0, 10}, {11, 1000}})));
    expect_corrupt(key, map({{0, 1001}}), "beyond the end");
    expect_corrupt(key, map({{10, 10}}), "empty");
    expect_corrupt(key, map({{10, 5}}), "backwards");
    expect_corrupt(key, map({{0, 10}, {10, 20}}), "without a hole");
    expect_corrupt(key, map({{20, 30}, {0, 10}}), "not in order");
    expect_corrupt(key, map({}, S_IFDIR), "of a directory");
}

TEST(Verify, ListingsHaveAsManyEntriesAsTheyMay) {
    const ObjectKey one{ObjectKind::entry, "/lus/sw/lib"};
    expect_accepted(publication(batch, listing_of({})));
    expect_accepted(publication(batch, listing_of(many(batch_entries))));
    expect_corrupt(batch, listing_of(many(batch_entries + 1)));
    expect_corrupt(batch, listing_of(many(1), Listing::Detail::names_only));
    expect_accepted(publication(one, listing_of({})));
    expect_accepted(publication(one, listing_of({entry("lib")})));
    expect_corrupt(one, listing_of({entry("lab")}), "another name");
    expect_corrupt(one, listing_of({entry("lib"), entry("lic")}), "two names");
    expect_corrupt(one, listing_of({entry("lib")}, Listing::Detail::names_only));
}

ObjectPtr for_now(const ObjectPtr& object) {
    return make_object(object->content, error_lifetime);
}

// With the first names of so many pieces, and no others.
ObjectPtr huge_directory(std::uint64_t entries, std::size_t pieces, std::uint64_t version = 7) {
    Directory huge;
    huge.version = version;
    huge.entries = entries;
    for (std::size_t i = 0; i < pieces; ++i) {
        huge.first_names.push_back(std::to_string(1000 + i));
    }
    return make_object(huge);
}

TEST(Verify, DirectoriesHaveAllNamesOrAFirstOneOfEachPiece) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, piece_entries}) {
        expect_accepted(publication(directory, make_object(test::directory_of(many(count)))));
    }
    expect_accepted(publication(directory, huge_directory(piece_entries + 1, 2)));
    expect_accepted(publication(directory, huge_directory(3 * piece_entries, 3)));
    expect_corrupt(directory, make_object(test::directory_of(many(piece_entries + 1))), "in one piece");
    expect_corrupt(directory, huge_directory(1, 1), "without its only piece");
    expect_corrupt(directory, huge_directory(3 * piece_entries, 2));
    expect_corrupt(directory, huge_directory(3 * piece_entries, 4));
    expect_corrupt(directory, huge_directory(0, 1), "a piece of nothing");
    expect_corrupt(directory, huge_directory(3 * piece_entries, 3, 0), "no version");
    expect_corrupt(directory,
                   huge_directory(directory_entries_max + 1,
                                  static_cast<std::size_t>(directory_entries_max / piece_entries + 1)));
    expect_corrupt(directory, huge_directory(std::numeric_limits<std::uint64_t>::max(), 0));
    Directory fewer = test::directory_of(many(5));
    ++fewer.entries;
    expect_corrupt(directory, make_object(fewer), "fewer names than it says");
}

TEST(Verify, PiecesOfNamesAreAsLargeAsTheyMay) {
    const ObjectKey names{ObjectKind::names, "/lus/sw", 3, 7};
    expect_accepted(publication(names, listing_of(many(piece_entries), Listing::Detail::names_only)));
    expect_corrupt(names, listing_of(many(piece_entries + 1), Listing::Detail::names_only));
    expect_corrupt(names, listing_of(many(1)), "with attributes");
    expect_corrupt(names, for_now(listing_of(many(1))), "with attributes");
    // What the directory is by now is never kept as its names of another version.
    for (const ObjectPtr& now :
         {huge_directory(3 * piece_entries, 3), make_object(test::directory_of(many(10)))}) {
        expect_accepted(publication(names, for_now(now)));
        expect_corrupt(names, now);
    }
    expect_corrupt(names, for_now(huge_directory(1, 1)));
}

TEST(Verify, AttributesAreThoseOfAFilesystem) {
    for (const std::uint32_t type : std::initializer_list<std::uint32_t>{S_IFREG, S_IFDIR, S_IFLNK, S_IFBLK,
                                                                         S_IFCHR, S_IFIFO, S_IFSOCK}) {
        expect_accepted(publication(batch, listing_of({entry("a", type | 0755)})));
    }
    for (const std::uint32_t type : {0U, 0030000U, 0170000U}) {
        expect_corrupt(batch, listing_of({entry("a", type | 0755)}));
        expect_accepted(publication({ObjectKind::names, "/lus/sw"},
                                    listing_of({entry("a", type | 0755)}, Listing::Detail::names_only)));
    }
    for (Timestamp Attributes::*time : {&Attributes::accessed, &Attributes::modified, &Attributes::changed}) {
        auto odd = entry("a");
        (odd.attributes.*time) = {.seconds = INT64_MIN, .nanoseconds = 999'999'999};
        expect_accepted(publication(batch, listing_of({odd})));
        (odd.attributes.*time).nanoseconds = 1'000'000'000;
        expect_corrupt(batch, listing_of({odd}));
    }
    auto large = entry("a");
    large.attributes.size = INT64_MAX;
    expect_accepted(publication(batch, listing_of({large})));
    ++large.attributes.size;
    expect_corrupt(batch, listing_of({large}));
}

TEST(Verify, TargetsAreThoseOfLinks) {
    expect_accepted(publication(batch, listing_of({entry("a", S_IFLNK | 0777, "../../outside")})));
    expect_accepted(publication(batch, listing_of({entry("a", S_IFLNK | 0777)})));
    expect_accepted(publication(batch, listing_of({entry("a", S_IFLNK, std::string(4095, 'x'))})));
    expect_corrupt(batch, listing_of({entry("a", S_IFREG, "x")}));
    expect_corrupt(batch, listing_of({entry("a", S_IFLNK, std::string(4096, 'x'))}));
    expect_corrupt(batch, listing_of({entry("a", S_IFLNK, std::string("x\0y", 3))}));
}

TEST(Verify, ExtendedAttributesAreThoseOfAFilesystem) {
    const ObjectKey key{ObjectKind::xattrs, "/lus/sw/a"};
    expect_accepted(publication(key, make_object(Xattrs{})));
    expect_accepted(publication(key, make_object(Xattrs{{std::string(255, 'n'), std::string(65536, '\0')}})));
    for (const auto& [name, value] : Xattrs{{"", "x"},
                                            {std::string(256, 'n'), "x"},
                                            {std::string("user.\0a", 7), "x"},
                                            {"user.a", std::string(65537, 'v')}}) {
        expect_corrupt(key, make_object(Xattrs{{"user.sound", "x"}, {name, value}}), name);
        expect_corrupt({ObjectKind::xattr_batch, "/lus/sw"},
                       make_object(XattrBatch{.entries = {{"a", Xattrs{{name, value}}}}}), name);
    }
    expect_accepted(publication({ObjectKind::xattr_batch, "/lus/sw"},
                                make_object(XattrBatch{.entries = {{"a", std::nullopt}, {"b", Xattrs{}}}})));
}

}  // namespace
}  // namespace copper
