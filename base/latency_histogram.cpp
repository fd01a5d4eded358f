#include "base/latency_histogram.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace copper {
namespace {

// Buckets 0..3 hold 0..3 us; from there each power of two has four buckets.
constexpr std::uint64_t exact_us = 4;

std::size_t bucket_of(std::uint64_t us) {
    if (us < exact_us) {
        return static_cast<std::size_t>(us);
    }
    const auto power = static_cast<unsigned>(std::bit_width(us)) - 1;
    const std::uint64_t quarter = (us >> (power - 2U)) & 3U;
    return std::min<std::size_t>((power - 1U) * 4U + quarter, LatencyHistogram::bucket_count - 1);
}

std::uint64_t upper_bound_us(std::size_t bucket) {
    if (bucket < exact_us) {
        return bucket;
    }
    const std::size_t power = bucket / 4 + 1;
    const std::uint64_t width = std::uint64_t{1} << (power - 2);
    return (4 + bucket % 4 + 1) * width - 1;
}

}  // namespace

void LatencyHistogram::record(std::chrono::nanoseconds latency) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(latency).count();
    const std::size_t bucket = bucket_of(us > 0 ? static_cast<std::uint64_t>(us) : 0);
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
}

LatencyHistogram::Buckets LatencyHistogram::buckets() const {
    Buckets copy{};
    std::transform(counts_.begin(), counts_.end(), copy.begin(),
                   [](const auto& count) { return count.load(std::memory_order_relaxed); });
    return copy;
}

std::uint64_t LatencyHistogram::quantile_us(const Buckets& buckets, double quantile) {
    const auto total = std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
    if (total == 0) {
        return 0;
    }
    std::uint64_t seen = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        if (buckets[i] == 0) {
            continue;
        }
        seen += buckets[i];
        last = i;
        if (static_cast<double>(seen) >= quantile * static_cast<double>(total)) {
            break;
        }
    }
    return upper_bound_us(last);
}

}  // namespace copper
