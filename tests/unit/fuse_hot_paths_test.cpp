#include "fuse/hot_paths.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace copper {
namespace {

TEST(HotPaths, SaysWhatIsAskedForMost) {
    HotPaths paths;
    paths.count("/rare", {});
    for (int i = 0; i < 3; ++i) {
        paths.count("/absent", {.absent = 1});
    }
    paths.count("/read", {.bytes_read = 10});
    paths.count("/read", {.bytes_read = 5});
    const auto top = paths.top(2);
    ASSERT_EQ(top.size(), 2U);
    EXPECT_EQ(top[0].first, "/absent");
    EXPECT_EQ(top[0].second.requests, 3U);
    EXPECT_EQ(top[0].second.absent, 3U);
    EXPECT_EQ(top[1].first, "/read");
    EXPECT_EQ(top[1].second.bytes_read, 15U);
    EXPECT_EQ(paths.top(10).size(), 3U);
}

TEST(HotPaths, KeepsTheHotOnesOfAGreatMany) {
    HotPaths paths;
    for (int i = 0; i < 100'000; ++i) {
        paths.count("/cold/" + std::to_string(i), {});
        paths.count("/hot/" + std::to_string(i % 10), {});
    }
    const auto top = paths.top(10);
    ASSERT_EQ(top.size(), 10U);
    for (const auto& [path, counts] : top) {
        EXPECT_TRUE(path.starts_with("/hot/")) << path;
        EXPECT_EQ(counts.requests, 10'000U);
    }
    EXPECT_LE(paths.top(1'000'000).size(), 2 * HotPaths::kept_min);
}

TEST(HotPaths, CountsForManyThreads) {
    HotPaths paths;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&paths] {
            for (int i = 0; i < 5000; ++i) {
                paths.count("/a", {});
                paths.count(std::to_string(i), {});
                if (i % 1000 == 0) {
                    paths.top(3);
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(paths.top(1).at(0).second.requests, 20'000U);
}

}  // namespace
}  // namespace copper
