#include "cache/backing/directory_names.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <set>

namespace copper {
namespace {

DirectoryNames names_of(const std::vector<std::string>& texts, std::uint32_t type = S_IFREG) {
    DirectoryNames names;
    for (const auto& text : texts) {
        names.add(text, hash_of({.kind = ObjectKind::entry, .path = "/" + text}), type);
    }
    names.sort_and_drop_repeats();
    return names;
}

std::vector<std::string> random_names(std::size_t count, std::size_t bytes_max) {
    std::mt19937 random(static_cast<unsigned>(count));
    std::set<std::string> names;
    while (names.size() < count) {
        std::string name(1 + random() % bytes_max, 'x');
        for (char& c : name) {
            c = static_cast<char>('a' + random() % 26);
        }
        names.insert(std::move(name));
    }
    std::vector<std::string> shuffled(names.begin(), names.end());
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    return shuffled;
}

bool has(const Directory& directory, const DirectoryNames& names, const std::string& name) {
    const auto piece = directory.piece_of(name);
    return piece && names.piece(*piece).find(name).has_value();
}

TEST(DirectoryNames, ADirectoryAndItsPiecesHoldAllNamesAndNoOther) {
    for (const std::size_t count : {std::size_t{1}, piece_entries - 1, piece_entries, piece_entries + 1,
                                    3 * piece_entries, 3 * piece_entries + 7}) {
        auto texts = random_names(count, 255);
        const DirectoryNames names = names_of(texts);
        const Directory directory = names.directory();
        EXPECT_EQ(directory.entries, count);
        ASSERT_EQ(directory.first_names.size(), (count + piece_entries - 1) / piece_entries);
        std::sort(texts.begin(), texts.end());
        std::size_t at = 0;
        for (std::uint32_t i = 0; i < directory.first_names.size(); ++i) {
            const Listing piece = names.piece(i);
            EXPECT_TRUE(directory.fits(i, piece));
            EXPECT_LE(make_object(piece)->bytes(), object_bytes_max);
            for (std::size_t j = 0; j < piece.size(); ++j) {
                ASSERT_EQ(piece.at(j).name, texts[at++]);
                ASSERT_EQ(piece.at(j).attributes.inode,
                          hash_of({.kind = ObjectKind::entry, .path = "/" + texts[at - 1]}));
            }
        }
        EXPECT_EQ(at, count);
        EXPECT_EQ(directory.has_all_names(), count <= piece_entries);
        EXPECT_EQ(directory.names.size(), count <= piece_entries ? count : 0);
        EXPECT_TRUE(count > piece_entries || directory.fits(0, directory.names));
        EXPECT_LE(make_object(directory)->bytes(), object_bytes_max);
        for (const std::string& text : {texts.front(), texts[count / 2], texts.back()}) {
            EXPECT_TRUE(has(directory, names, text));
            EXPECT_FALSE(has(directory, names, text + '\x01'));
            EXPECT_FALSE(has(directory, names, "\x01" + text));
            EXPECT_FALSE(has(directory, names, "~" + text));
        }
    }
}

TEST(DirectoryNames, AnEmptyDirectoryHasNoPieceButAllNames) {
    const Directory directory = names_of({}).directory();
    EXPECT_EQ(directory.entries, 0U);
    EXPECT_NE(directory.version, 0U);
    EXPECT_TRUE(directory.first_names.empty());
    EXPECT_TRUE(directory.has_all_names());
    EXPECT_FALSE(directory.piece_of("a"));
}

TEST(DirectoryNames, APieceFitsNoOtherPlaceOrDirectory) {
    const DirectoryNames names = names_of(random_names(3 * piece_entries, 20));
    std::vector<std::string> texts = random_names(3 * piece_entries, 20);
    for (std::string& text : texts) {
        text += '~';
    }
    const DirectoryNames others = names_of(texts);
    const Directory directory = names.directory();
    EXPECT_FALSE(directory.fits(0, names.piece(1)));
    EXPECT_FALSE(directory.fits(1, names.piece(0)));
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_FALSE(directory.fits(i, others.piece(i)));
    }
    EXPECT_FALSE(directory.fits(0, Listing({}, Listing::Detail::names_only)));
}

TEST(DirectoryNames, AnyOtherNameOrTypeIsAnotherVersion) {
    const auto version = [](const DirectoryNames& names) { return names.directory().version; };
    const std::uint64_t before = version(names_of({"a", "bc", "d"}));
    EXPECT_EQ(version(names_of({"d", "a", "bc", "a"})), before) << "order and repeats mean nothing";
    EXPECT_NE(version(names_of({"a", "bc"})), before);
    EXPECT_NE(version(names_of({"ab", "c", "d"})), before);
    EXPECT_NE(version(names_of({"a", "bc", "e"})), before);
    EXPECT_NE(version(names_of({"a", "bc", "d"}, S_IFDIR)), before);
}

TEST(DirectoryNames, WhatIsTakenOutIsGone) {
    DirectoryNames names = names_of({"a", "b", "c", "d"});
    names.erase({1, 3});
    EXPECT_EQ(names.size(), 2U);
    EXPECT_TRUE(names.find("a"));
    EXPECT_FALSE(names.find("b"));
    EXPECT_TRUE(names.find("c"));
    EXPECT_FALSE(names.find("d"));
}

}  // namespace
}  // namespace copper
