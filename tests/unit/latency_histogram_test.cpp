#include "base/latency_histogram.hpp"

#include <gtest/gtest.h>

namespace copper {
namespace {

using std::chrono::microseconds;

TEST(LatencyHistogram, IsZeroWithoutCounts) {
    EXPECT_EQ(LatencyHistogram::quantile_us(LatencyHistogram().buckets(), 0.99), 0U);
}

TEST(LatencyHistogram, BoundsEveryDurationFromAboveByAFifth) {
    for (std::uint64_t us = 1; us < std::uint64_t{1} << 31; us += 1 + us / 7) {
        LatencyHistogram histogram;
        histogram.record(microseconds(us));
        const auto bound = LatencyHistogram::quantile_us(histogram.buckets(), 1);
        EXPECT_GE(bound, us);
        EXPECT_LE(static_cast<double>(bound), 1.25 * static_cast<double>(us));
    }
}

TEST(LatencyHistogram, KeepsWhatIsTooLongInItsLastBucket) {
    LatencyHistogram histogram;
    histogram.record(std::chrono::hours(1000));
    EXPECT_EQ(histogram.buckets().back(), 1U);
}

TEST(LatencyHistogram, FindsQuantilesOfMergedBuckets) {
    LatencyHistogram fast;
    LatencyHistogram slow;
    for (int i = 0; i < 99; ++i) {
        fast.record(microseconds(2));
    }
    slow.record(microseconds(1000));
    auto merged = fast.buckets();
    const auto other = slow.buckets();
    for (std::size_t i = 0; i < merged.size(); ++i) {
        merged[i] += other[i];
    }
    EXPECT_EQ(LatencyHistogram::quantile_us(merged, 0.5), 2U);
    EXPECT_EQ(LatencyHistogram::quantile_us(merged, 0.99), 2U);
    EXPECT_EQ(LatencyHistogram::quantile_us(merged, 1), 1023U);
}

}  // namespace
}  // namespace copper
