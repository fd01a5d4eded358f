#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace copper {

// Counts durations in buckets. Four buckets cover each power of two of microseconds (the layout of
// HdrHistogram with two bits of precision), so a bucket is at most 19% wide. Thread-safe. To merge histograms
// of several nodes, add their buckets.
class LatencyHistogram {
  public:
    static constexpr std::size_t bucket_count = 128;
    using Buckets = std::array<std::uint64_t, bucket_count>;

    void record(std::chrono::nanoseconds latency);
    Buckets buckets() const;

    // The upper bound in microseconds of the bucket that reaches `quantile` (0..1) of all counts; 0 without
    // counts.
    static std::uint64_t quantile_us(const Buckets& buckets, double quantile);

  private:
    std::array<std::atomic<std::uint64_t>, bucket_count> counts_ = {};
};

}  // namespace copper
