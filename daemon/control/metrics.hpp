// The one table of Copper's metrics. JSON, OpenMetrics and the CLI's tables all print from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/latency_histogram.hpp"

namespace copper {

enum class MetricKind { counter, gauge };

struct MetricRow {
    const char* group;  // "fuse", "backing", ... as in `copper stats --json`
    const char* name;
    MetricKind kind;
    const char* unit;  // "requests", "bytes", ...
    const char* help;
};
const std::vector<MetricRow>& metric_table();

// Per node: {"fuse": {...}, ..., "latency_us": {"lookup": {"p50":, "p99":, "max":, "buckets": [...]}, ...},
//            "memory": {"rss_bytes": n}}.
// Adds the groups of the nodes up to totals, gauges included. Merges latencies from their buckets. "memory"
// becomes {"rss_bytes_max": n, "rss_bytes_total": n}. Totals can be added up again.
nlohmann::json add_up(const std::vector<nlohmann::json>& nodes);

// One entry of "latency_us".
nlohmann::json latency_summary(const LatencyHistogram::Buckets& buckets);

// Of "lookup", "read" or "turn".
LatencyHistogram::Buckets buckets_of(const nlohmann::json& node, const char* latency);

// OpenMetrics text (https://openmetrics.io, RFC draft) of the nodes' groups. The "rank" and
// "host" of a node, or the "job" of a sum, become labels.
std::string to_open_metrics(const std::vector<nlohmann::json>& nodes);

}  // namespace copper
