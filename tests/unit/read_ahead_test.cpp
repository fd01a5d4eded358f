#include "cache/read_ahead.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace copper {
namespace {

constexpr std::uint32_t window_max = 16;

TEST(ReadAhead, FetchesEachExtentOfAFileThatIsReadInOrderOnce) {
    ReadAhead ahead;
    constexpr std::uint32_t extents = 100;
    std::vector<int> fetched(extents, 0);
    for (std::uint32_t read = 0; read < extents; ++read) {
        // The kernel asks for an extent in several pieces.
        for (int piece = 0; piece < 8; ++piece) {
            const auto range = ahead.next({read, read + 1}, extents, window_max);
            EXPECT_LE(range.end, read + 1 + window_max);
            for (std::uint32_t i = range.begin; i < range.end; ++i) {
                EXPECT_GT(i, read);
                ++fetched.at(i);
            }
        }
        if (read > 30 && read + 1 < extents) {
            EXPECT_EQ(fetched[read + 1], 1) << "the next one is on its way";
        }
    }
    EXPECT_EQ(fetched, [] {
        std::vector<int> once(extents, 1);
        once[0] = 0;
        return once;
    }());
}

TEST(ReadAhead, TheWindowGrowsFromSmall) {
    ReadAhead ahead;
    EXPECT_EQ(ahead.next({0, 1}, 1000, window_max), (ExtentRange{}));
    EXPECT_EQ(ahead.next({0, 1}, 1000, window_max), (ExtentRange{1, 3}));
    EXPECT_EQ(ahead.next({1, 2}, 1000, window_max), (ExtentRange{3, 6}));
    EXPECT_EQ(ahead.next({3, 4}, 1000, window_max), (ExtentRange{6, 12}));
    EXPECT_EQ(ahead.next({9, 10}, 12, window_max), (ExtentRange{12, 12})) << "nothing beyond the end";
}

TEST(ReadAhead, RandomReadsFetchNothingElse) {
    ReadAhead ahead;
    for (const std::uint32_t read : {500U, 20U, 900U, 100U, 700U}) {
        const auto range = ahead.next({read, read + 1}, 1000, window_max);
        EXPECT_EQ(range.begin, range.end) << read;
    }
    // From where it goes on in order, it is fetched ahead again.
    EXPECT_EQ(ahead.next({701, 702}, 1000, window_max), (ExtentRange{702, 704}));
}

TEST(ReadAhead, ReadsThatOvertakeEachOtherAreInOrder) {
    ReadAhead ahead;
    std::vector<int> fetched(1000, 0);
    for (const std::uint32_t read : {1U, 0U, 3U, 2U, 5U, 4U, 7U, 6U, 9U, 8U, 11U, 10U, 12U}) {
        const auto range = ahead.next({read, read + 1}, 1000, window_max);
        for (std::uint32_t i = range.begin; i < range.end; ++i) {
            EXPECT_EQ(++fetched.at(i), 1) << i;
        }
    }
    EXPECT_EQ(fetched.at(13), 1);
}

TEST(ReadAhead, SeveralProgramsReadAtDifferentPlaces) {
    ReadAhead ahead;
    std::vector<int> fetched(8000, 0);
    for (std::uint32_t step = 0; step < 100; ++step) {
        for (std::uint32_t program = 0; program < ReadAhead::streams_max; ++program) {
            const std::uint32_t read = 1000 * program + step;
            const auto range = ahead.next({read, read + 1}, 8000, window_max);
            for (std::uint32_t i = range.begin; i < range.end; ++i) {
                EXPECT_EQ(++fetched.at(i), 1) << i;
            }
            EXPECT_TRUE(step == 0 || fetched.at(read + 1) == 1) << read << ": the next one is on its way";
        }
    }
}

// The one that has read nothing for longest is forgotten.
TEST(ReadAhead, KnowsOnlySoManyPrograms) {
    ReadAhead ahead;
    const auto programs = static_cast<std::uint32_t>(ReadAhead::streams_max);
    for (std::uint32_t program = 0; program <= programs; ++program) {
        ahead.next({1000 * program, 1000 * program + 1}, 100000, window_max);
    }
    EXPECT_EQ(ahead.next({1001, 1002}, 100000, window_max), (ExtentRange{1002, 1004}));
    EXPECT_EQ(ahead.next({1, 2}, 100000, window_max), (ExtentRange{}));
}

}  // namespace
}  // namespace copper
