#include "collectives/first_version.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "cache/names.hpp"
#include "tests/support/directory_object.hpp"

namespace copper {
namespace {

Listing::NewEntry entry_of(const std::string& name, std::uint32_t version) {
    return {.name = name,
            .target = {},
            .attributes = {.inode = 7, .size = 3, .mode = S_IFREG | 0644U, .changed = {1, version}}};
}

ObjectPtr listing_of(std::vector<Listing::NewEntry> entries,
                     std::optional<std::chrono::milliseconds> lifetime = std::nullopt) {
    return make_object(Listing(std::move(entries), Listing::Detail::attributes), lifetime);
}

// A cache in a map.
class FirstVersion : public testing::Test {
  protected:
    ObjectPtr find(const ObjectKey& key) const {
        const auto known = cache.find(key);
        return known != cache.end() ? known->second : nullptr;
    }
    ObjectPtr read(const ObjectKey& key, const ObjectPtr& object) const {
        return with_first_versions(key, object, [this](const ObjectKey& other) { return find(other); });
    }
    auto proven(const ObjectKey& key, const Object& object) const {
        return proven_by(key, object, [this](const ObjectKey& other) { return find(other); });
    }
    static std::uint32_t version_in(const ObjectPtr& object, const std::string& name) {
        const auto entry = object->entry(name);
        return entry ? entry->attributes.changed.nanoseconds : 0;
    }

    const ObjectKey names{.kind = ObjectKind::directory, .path = "/d"};
    const ObjectKey batch{.kind = ObjectKind::batch, .path = "/d", .index = 0, .version = 5};
    const ObjectKey alone = entry_key("/d", "b");
    std::map<ObjectKey, ObjectPtr> cache = {
        {names, make_directory(test::directory_of({entry_of("a", 0), entry_of("b", 0)}, 5))}};
};

TEST_F(FirstVersion, ABatchHasTheAttributesThatWereReadAlone) {
    const ObjectPtr later = listing_of({entry_of("a", 2), entry_of("b", 2)});
    EXPECT_EQ(read(batch, later), later);
    cache[alone] = listing_of({entry_of("b", 1)});
    EXPECT_EQ(version_in(read(batch, later), "a"), 2U);
    EXPECT_EQ(version_in(read(batch, later), "b"), 1U);
    cache[alone] = listing_of({});
    EXPECT_EQ(read(batch, later)->listing()->size(), 1U) << "its absence is the first version, too";
    cache[alone] = listing_of({entry_of("b", 1)}, doubtful_lifetime);
    EXPECT_EQ(read(batch, later), later);
}

TEST_F(FirstVersion, AttributesReadAloneAreThoseOfTheBatch) {
    const ObjectPtr later = listing_of({entry_of("b", 2)});
    EXPECT_EQ(read(alone, later), later);
    cache[batch] = listing_of({entry_of("a", 1), entry_of("b", 1)});
    EXPECT_EQ(version_in(read(alone, later), "b"), 1U);
    cache[batch] = make_error(EAGAIN);
    EXPECT_EQ(read(alone, later), later);
    EXPECT_EQ(read(alone, make_error(EIO))->error(), std::errc::io_error);
}

TEST_F(FirstVersion, OfADirectoryInPieces) {
    Directory pieces = test::directory_of({}, 5);
    pieces.entries = piece_entries + 1;
    pieces.first_names = {"a", "b"};
    cache[names] = make_directory(pieces);
    const ObjectKey late{.kind = ObjectKind::batch,
                         .path = "/d",
                         .index = static_cast<std::uint32_t>(piece_entries / batch_entries),
                         .version = 5};
    cache[late] = listing_of({entry_of("b", 1)});
    const ObjectPtr later = listing_of({entry_of("b", 2)});
    EXPECT_EQ(read(alone, later), later) << "the piece is not here";
    cache[{.kind = ObjectKind::names, .path = "/d", .index = 1, .version = 5}] =
        make_object(Listing({entry_of("b", 0)}, Listing::Detail::names_only));
    EXPECT_EQ(version_in(read(alone, later), "b"), 1U);
}

TEST_F(FirstVersion, BytesOfAnotherVersionAreKnownByTheirOwn) {
    const Attributes found = entry_of("b", 2).attributes;
    const auto bytes = make_object(Extent{.attributes = found, .blob = {}}, error_lifetime);
    const std::uint64_t version = hash_of(version_of(found));
    ObjectKey key{.kind = ObjectKind::extent, .path = "/d/b", .index = 0, .version = version};
    EXPECT_TRUE(proven(key, *bytes).empty());
    key.version = 77;
    const auto objects = proven(key, *bytes);
    ASSERT_EQ(objects.size(), 1U);
    EXPECT_EQ(objects[0].first.version, version);
    EXPECT_FALSE(objects[0].second->lifetime);
    cache.insert(objects.begin(), objects.end());
    EXPECT_TRUE(proven(key, *bytes).empty()) << "the first one stays";
}

TEST_F(FirstVersion, BytesProveAttributesThatWereDoubtful) {
    const Attributes found = entry_of("b", 2).attributes;
    const ObjectKey key{
        .kind = ObjectKind::extent, .path = "/d/b", .index = 0, .version = hash_of(version_of(found))};
    const Object bytes{.content = Extent{.attributes = found, .blob = {}}, .lifetime = {}};
    cache[alone] = listing_of({entry_of("b", 1)}, doubtful_lifetime);
    const auto objects = proven(key, bytes);
    ASSERT_EQ(objects.size(), 1U);
    EXPECT_EQ(objects[0].first, alone);
    EXPECT_EQ(version_in(objects[0].second, "b"), 2U);
    EXPECT_FALSE(objects[0].second->lifetime);
    cache[alone] = listing_of({entry_of("b", 1)});
    EXPECT_TRUE(proven(key, bytes).empty());
}

}  // namespace
}  // namespace copper
