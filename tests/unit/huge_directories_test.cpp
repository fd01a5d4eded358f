#include "cache/backing/listed_directories.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

HugeDirectories::Found directory_of(std::uint64_t version, std::size_t bytes = 100) {
    auto huge = std::make_shared<HugeDirectory>();
    for (std::size_t i = 0; huge->names.text_bytes() < bytes; ++i) {
        huge->names.add(std::to_string(1000000 + i) + std::string(240, 'x'), 1, 1);
    }
    huge->names.sort_and_drop_repeats();
    huge->index.version = version;
    huge->listed = Version{.inode = version};
    return {.object = make_object(huge->index), .huge = std::move(huge)};
}

std::string path_of(std::size_t number) {
    return "/t/" + std::to_string(number);
}

TEST(HugeDirectories, KeepsTheLastFew) {
    HugeDirectories directories;
    for (std::size_t i = 0; i < 10; ++i) {
        directories.read(path_of(i), [i] { return directory_of(i); });
        ASSERT_NE(directories.find(path_of(0), 0), nullptr) << "it is used all the time";
        EXPECT_EQ(directories.find(path_of(i), i + 1), nullptr) << "another version";
        EXPECT_EQ(directories.find(path_of(i), Version{.inode = i})->index.version, i);
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < 10; ++i) {
        kept += directories.find(path_of(i), i) != nullptr ? 1 : 0;
    }
    EXPECT_EQ(kept, HugeDirectories::directories_max);
    EXPECT_NE(directories.find(path_of(9), 9), nullptr);
}

TEST(HugeDirectories, KeepsNoMoreThanSoManyBytesButTheLastOneAlways) {
    HugeDirectories directories;
    directories.read("/a", [] { return directory_of(1, HugeDirectories::bytes_max * 2 / 5); });
    directories.read("/b", [] { return directory_of(2, HugeDirectories::bytes_max * 2 / 5); });
    EXPECT_NE(directories.find("/a", 1), nullptr);
    EXPECT_NE(directories.find("/b", 2), nullptr);
    directories.read("/c", [] { return directory_of(3, HugeDirectories::bytes_max * 2); });
    EXPECT_EQ(directories.find("/a", 1), nullptr);
    EXPECT_EQ(directories.find("/b", 2), nullptr);
    EXPECT_NE(directories.find("/c", 3), nullptr);
}

TEST(HugeDirectories, WhatIsForgottenIsReadAnew) {
    HugeDirectories directories;
    directories.read("/t/a", [] { return directory_of(1); });
    directories.read("/t/ab", [] { return directory_of(2); });
    directories.forget("/t/a");
    EXPECT_EQ(directories.find("/t/a", 1), nullptr);
    EXPECT_NE(directories.find("/t/ab", 2), nullptr);
    // Also where a reading is under way.
    directories.read("/t/a", [&] {
        directories.forget("/t");
        EXPECT_EQ(directories.read("/t/a", [] { return directory_of(4); }).huge->index.version, 4U);
        return directory_of(3);
    });
}

TEST(HugeDirectories, ASmallOneIsNotKept) {
    HugeDirectories directories;
    const auto object = make_object(Listing({}, Listing::Detail::attributes));
    const auto found = directories.read("/a", [&] { return HugeDirectories::Found{object, nullptr}; });
    EXPECT_EQ(found.object, object);
    EXPECT_EQ(directories.find("/a", 0), nullptr);
}

}  // namespace
}  // namespace copper
