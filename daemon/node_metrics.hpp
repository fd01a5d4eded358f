// A node's counters in the form of the metric table.
#pragma once

#include <nlohmann/json.hpp>

#include "cache/backing/counters.hpp"
#include "cache/cache.hpp"
#include "collectives/mover.hpp"
#include "fabric/fabric.hpp"
#include "fuse/counters.hpp"
#include "profile/replay.hpp"

namespace copper {

struct NodeCounts {
    const FuseCounters& fuse;
    const BackingCounters& backing;
    const BackingCounters& local;
    Cache::Statistics cache;
    FabricCounters fabric;
    MoverCounters mover;
    std::uint64_t nodes_lost = 0;
    std::uint64_t frames_refused = 0;
    LatencyHistogram::Buckets turns = {};  // of the progress loop
    Replay::Progress replay = {};          // of the profile
};

// All groups of metrics.hpp.
nlohmann::json metrics_of(const NodeCounts& counts);

// [{"path":, "requests":, "absent":, "bytes_read":}, ...], most requests first.
nlohmann::json top_paths(HotPaths& paths, std::size_t paths_max);

std::uint64_t resident_bytes();

}  // namespace copper
