// What the nodes of a job say together, in a text that stays small however many they are: the nodes add it up
// on its way to the asker.
#pragma once

#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/latency_histogram.hpp"

namespace copper {

inline constexpr std::size_t conspicuous_nodes_max = 24;
inline constexpr std::size_t departed_told_max = 64;  // nodes for which `copper status` shows the reason
inline constexpr std::size_t filesystems_told_max = 16;
inline constexpr std::size_t reasons_told_max = 16;  // why nodes have no view
inline constexpr std::size_t summed_paths_bytes_max = 256U << 10;

// `answers`: of nodes to verb::sum (or, with fewer keys, to verb::stats), and sums of them. The result has
//   the groups of metrics.hpp, added up,
//   "nodes": the number of nodes in it, "serving": those of them that serve as they should,
//   "uptime_seconds": the longest, "mount" and "trees": of any node,
//   "waiting": how many requests of programs wait for an object,
//   "silent": {FILESYSTEM: {seconds, nodes}, ...} that does not answer: the longest time, on how many nodes,
//   "paces": {FILESYSTEM: {operation_us, is_serial}, ...} that does not answer at once
//   (cache/backing/pace.hpp): on the node for which it is slowest, and whether any found it serial,
//   "departed": {RANK: why, ...} of nodes that have left, as the others know it,
//   "timeline": Timeline,
//   "conspicuous": [{rank, host, state, why, ready_ms, requests, wait_p99_us, wait_max_us, direct_reads,
//   retries,
//       rss_bytes}, ...]: first the nodes that do not serve as they should, then those whose programs wait
//       longest,
//   "top_paths": [{path, requests, absent, bytes_read}, ...], most requested first: about `paths_max` of
//   these and
//       of those that are absent most often. Approximate: each node names only its own.
nlohmann::json sum_of(const std::vector<nlohmann::json>& answers, std::size_t paths_max);

// How long programs waited for answers to lookups and reads, of a node or a sum.
LatencyHistogram::Buckets waits_of(const nlohmann::json& node);

// The `paths_max` paths with most of `count` ("requests", "absent"), of those that have any.
std::vector<nlohmann::json> most(const std::vector<nlohmann::json>& paths, const char* count,
                                 std::size_t paths_max);

}  // namespace copper
