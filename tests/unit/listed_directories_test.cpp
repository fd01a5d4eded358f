#include "cache/backing/listed_directories.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <bit>
#include <random>

#include "cache/backing/directory_names.hpp"

namespace copper {
namespace {

ListedDirectories::Found found(ListedDirectory listed) {
    const ObjectPtr object = listed.object;
    return {.object = object, .names = std::make_shared<ListedDirectory>(std::move(listed))};
}

ObjectPtr object_of(std::uint64_t version) {
    Directory directory;
    directory.version = version;
    return make_object(std::move(directory));
}

// With names of so many bytes, which cannot be packed.
ListedDirectories::Found directory_of(std::uint64_t version, std::size_t bytes = 100) {
    std::mt19937_64 random;
    std::vector<Listing::NewEntry> entries;
    for (std::size_t i = 0; i * 247 < bytes; ++i) {
        std::string name = std::to_string(1000000 + i);
        for (int word = 0; word < 30; ++word) {
            const auto letters = std::bit_cast<std::array<char, 8>>(random());
            name.append(letters.data(), letters.size());
        }
        entries.push_back({.name = std::move(name), .target = {}, .attributes = {}});
    }
    return found({.object = object_of(version),
                  .pieces = {PackedNames(Listing(std::move(entries), Listing::Detail::names_only))},
                  .listed = Version{.inode = version}});
}

std::string path_of(std::size_t number) {
    return "/t/" + std::to_string(number);
}

TEST(ListedDirectories, KeepsManySmallOnes) {
    ListedDirectories directories;
    for (std::size_t i = 0; i < 1000; ++i) {
        directories.read({.path = path_of(i)}, [i] { return directory_of(i); });
        EXPECT_EQ(directories.find(path_of(i), i + 1), nullptr) << "another version";
    }
    for (std::size_t i = 0; i < 1000; ++i) {
        ASSERT_NE(directories.find(path_of(i), i), nullptr) << i;
        EXPECT_EQ(directories.find({.path = path_of(i)}, Version{.inode = i})->directory().version, i);
        EXPECT_EQ(directories.find({.path = path_of(i)}, Version{.inode = i + 1}), nullptr);
    }
}

// sshfs keeps attributes and names for 20 s each, not the same ones.
TEST(ListedDirectories, AnswersAfterARefreshWithNamesReadSince) {
    ListedDirectories directories;
    const ObjectKey before{.path = "/t"};
    const ObjectKey after{.path = "/t", .generation = 1};
    const Version stamp{.inode = 1};
    directories.read(before, [] { return directory_of(1); });
    EXPECT_NE(directories.find(before, stamp), nullptr);
    EXPECT_EQ(directories.find(after, stamp), nullptr);
    directories.read(after, [] { return directory_of(1); });
    EXPECT_NE(directories.find(after, stamp), nullptr);
}

TEST(ListedDirectories, KeepsTheLastOnesUpToSoManyBytes) {
    ListedDirectories directories;
    constexpr std::size_t each = ListedDirectories::bytes_max / 64;
    constexpr std::size_t count = 200;
    for (std::size_t i = 0; i < count; ++i) {
        directories.read({.path = path_of(i)}, [i] { return directory_of(i, each); });
        ASSERT_NE(directories.find(path_of(0), 0), nullptr) << "it is used all the time";
    }
    std::size_t kept = 0;
    std::size_t bytes = 0;
    for (std::size_t i = 1; i < count; ++i) {
        const auto listed = directories.find(path_of(i), i);
        ASSERT_TRUE(listed != nullptr || kept == 0) << "the least recently used leave first";
        kept += listed != nullptr ? 1 : 0;
        bytes += listed != nullptr ? listed->bytes() : 0;
    }
    EXPECT_NE(directories.find(path_of(count - 1), count - 1), nullptr);
    EXPECT_LT(bytes, ListedDirectories::bytes_max);
    EXPECT_GT(bytes, ListedDirectories::bytes_max * 3 / 4);
}

// What the directory's own object takes counts too, and so does what a small one takes around its names.
TEST(ListedDirectories, CountsAllBytes) {
    ListedDirectories directories;
    constexpr std::size_t count = ListedDirectories::bytes_max / 65536;
    for (std::size_t i = 0; i < count; ++i) {
        directories.read({.path = path_of(i)}, [i] {
            Directory directory;
            directory.version = i;
            directory.first_names.assign(128, std::string(1024, 'x'));  // 128 KiB
            return found({.object = make_object(std::move(directory)), .pieces = {}, .listed = std::nullopt});
        });
    }
    EXPECT_EQ(directories.find(path_of(0), 0), nullptr);
    EXPECT_NE(directories.find(path_of(count - 1), count - 1), nullptr);
    EXPECT_NE(directories.find(path_of(count * 3 / 4), count * 3 / 4), nullptr);
}

TEST(ListedDirectories, KeepsTheLastOneHoweverLarge) {
    ListedDirectories directories;
    directories.read({.path = "/a"}, [] { return directory_of(1, ListedDirectories::bytes_max / 5); });
    directories.read({.path = "/b"}, [] { return directory_of(2, ListedDirectories::bytes_max / 5); });
    EXPECT_NE(directories.find("/a", 1), nullptr);
    EXPECT_NE(directories.find("/b", 2), nullptr);
    directories.read({.path = "/c"}, [] { return directory_of(3, ListedDirectories::bytes_max * 2); });
    EXPECT_EQ(directories.find("/a", 1), nullptr);
    EXPECT_EQ(directories.find("/b", 2), nullptr);
    EXPECT_NE(directories.find("/c", 3), nullptr);
    directories.read({.path = "/d"}, [] { return directory_of(4); });
    EXPECT_EQ(directories.find("/c", 3), nullptr);
    EXPECT_NE(directories.find("/d", 4), nullptr);
}

std::string name_of(std::size_t number) {
    return "sample_" + std::to_string(10000000 + number) + ".jpg";
}

ListedDirectories::Found list_many(std::uint64_t version, std::size_t count) {
    DirectoryNames names;
    for (std::size_t i = 0; i < count; ++i) {
        names.add(name_of(i), version * 0x1000000 + i * 0x9e3779b1U % 0x1000000, S_IFREG);
    }
    names.sort_and_drop_repeats();
    ListedDirectory listed{.object = object_of(version), .pieces = {}, .listed = std::nullopt};
    for (std::uint32_t piece = 0; piece * piece_entries < count; ++piece) {
        listed.pieces.emplace_back(names.piece(piece));
    }
    return found(std::move(listed));
}

TEST(ListedDirectories, TwoOfAMillionNamesDoNotListEachOtherOut) {
    constexpr std::size_t count = 1000000;
    ListedDirectories directories;
    int listings = 0;
    for (std::size_t piece = 0; piece * piece_entries < count; ++piece) {
        for (const std::uint64_t version : {1U, 2U}) {
            ListedDirectoryPtr listed = directories.find(path_of(version), version);
            if (listed == nullptr) {
                ++listings;
                listed =
                    directories.read({.path = path_of(version)}, [&] { return list_many(version, count); })
                        .names;
            }
            const ObjectPtr object = listed->piece(piece);
            const Listing& names = *object->listing();
            ASSERT_EQ(names.size(), std::min(piece_entries, count - piece * piece_entries));
            EXPECT_EQ(names.name(0), name_of(piece * piece_entries));
            EXPECT_EQ(names.name(names.size() - 1), name_of(piece * piece_entries + names.size() - 1));
            EXPECT_EQ(names.at(7).attributes.inode,
                      version * 0x1000000 + (piece * piece_entries + 7) * 0x9e3779b1U % 0x1000000);
            EXPECT_EQ(names.at(7).attributes.mode, std::uint32_t{S_IFREG});
        }
        ASSERT_LE(listings, 2);
    }
    const auto bytes = directories.find(path_of(1), 1)->bytes();
    EXPECT_LT(bytes, 20 * count) << "some 12 bytes each, and not 45";
}

TEST(ListedDirectories, PackedNamesAreWhatTheyWere) {
    for (const std::size_t count : {0U, 1U, 7U, 2048U}) {
        std::mt19937_64 random(count);
        std::vector<Listing::NewEntry> entries;
        for (std::size_t i = 0; i < count; ++i) {
            std::string name = std::to_string(10000 + i);
            name.resize(5 + random() % 251, static_cast<char>(random() % 200 + 48));
            entries.push_back({.name = std::move(name),
                               .target = {},
                               .attributes = {.inode = random() >> random() % 64,
                                              .mode = i % 3 == 0   ? S_IFDIR
                                                      : i % 3 == 1 ? S_IFREG
                                                                   : 0U}});
        }
        const Listing plain(std::move(entries), Listing::Detail::names_only);
        const Listing unpacked = PackedNames(plain).names();
        ASSERT_EQ(unpacked.size(), count);
        for (std::size_t i = 0; i < count; ++i) {
            EXPECT_EQ(unpacked.name(i), plain.name(i));
            EXPECT_EQ(unpacked.at(i).attributes, plain.at(i).attributes);
        }
    }
}

// Programs are in the middle of the old names while others begin with the new ones.
TEST(ListedDirectories, TwoVersionsOfAPathMayBeKept) {
    ListedDirectories directories;
    directories.read({.path = "/a"}, [] { return directory_of(1); });
    directories.read({.path = "/a"}, [] { return directory_of(2); });
    for (const std::uint64_t version : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1}}) {
        ASSERT_NE(directories.find("/a", version), nullptr);
        EXPECT_EQ(directories.find("/a", version)->directory().version, version);
        EXPECT_EQ(directories.find({.path = "/a"}, Version{.inode = version})->directory().version, version);
    }
}

// The same names once more, of the directory as it is now, take the place of the old ones.
TEST(ListedDirectories, OneVersionIsKeptOnce) {
    ListedDirectories directories;
    for (std::uint64_t stamp = 1; stamp <= 300; ++stamp) {
        directories.read({.path = "/a"}, [stamp] {
            ListedDirectory listed = *directory_of(7, ListedDirectories::bytes_max / 100).names;
            listed.listed = Version{.inode = stamp};
            return found(std::move(listed));
        });
        if (stamp == 1) {
            directories.read({.path = "/b"}, [] { return directory_of(8); });
        }
    }
    EXPECT_EQ(directories.find({.path = "/a"}, Version{.inode = 299}), nullptr);
    EXPECT_NE(directories.find({.path = "/a"}, Version{.inode = 300}), nullptr);
    EXPECT_NE(directories.find("/b", 8), nullptr) << "nothing had to leave for them";
}

// Whoever asks after a refresh does not get what somebody has begun to list before.
TEST(ListedDirectories, AListingUnderWayIsOfOneGeneration) {
    ListedDirectories directories;
    const auto outer = directories.read({.path = "/a"}, [&] {
        const auto inner = directories.read({.path = "/a", .generation = 1}, [] { return directory_of(2); });
        EXPECT_EQ(inner.names->directory().version, 2U);
        return directory_of(1);
    });
    EXPECT_EQ(outer.names->directory().version, 1U);
}

TEST(ListedDirectories, AnErrorIsNotKept) {
    ListedDirectories directories;
    const auto object = make_error(EIO);
    const auto found = directories.read({.path = "/a"}, [&] {
        return ListedDirectories::Found{object, nullptr};
    });
    EXPECT_EQ(found.object, object);
    EXPECT_EQ(directories.find("/a", 0), nullptr);
}

}  // namespace
}  // namespace copper
