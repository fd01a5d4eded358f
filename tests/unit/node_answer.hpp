// Answers of nodes, for the tests of those who add them up.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

#include <nlohmann/json.hpp>

#include "daemon/control/timeline.hpp"
#include "daemon/node_metrics.hpp"

namespace copper::test {

// What a node answers to verb::sum after the start-up of a job.
inline nlohmann::json node_answer(std::uint32_t rank, std::size_t paths) {
    using namespace std::chrono_literals;
    FuseCounters fuse;
    BackingCounters backing;
    BackingCounters local;
    fuse.requests = 1000 + rank;
    fuse.bytes_read = std::uint64_t{1} << 30U;
    Timeline timeline;
    for (int i = 0; i < 60; ++i) {
        fuse.lookup_latency.record(std::chrono::microseconds(i * i) * (rank == 1010 ? 100 : 1));
        timeline.add(Timeline::Time(1000000s + i * 250ms), {0, 17, 5, 100000, 20000000, 0});
    }
    nlohmann::json answer =
        metrics_of({.fuse = fuse,
                    .backing = backing,
                    .local = local,
                    .cache = {.objects = 5000, .bytes = 100 << 20U, .budget_bytes = 1000 << 20U},
                    .fabric = {},
                    .mover = {}});
    answer["memory"]["rss_bytes"] = 1000000 + rank;
    answer["rank"] = rank;
    answer["host"] = "nid" + std::to_string(100000 + rank);
    answer["state"] = rank % 1000 == 999 ? "degraded" : "serving";
    answer["uptime_seconds"] = 10.0 + rank;
    answer["timeline"] = to_json(timeline);
    for (std::size_t i = 0; i < paths; ++i) {
        answer["top_paths"].push_back(
            {{"path", "/lustre/sw/lib/python3.11/site-packages/package/" + std::to_string(i)},
             {"requests", 1000 - i},
             {"absent", i % 2},
             {"bytes_read", 1}});
    }
    return answer;
}

// Processor time of this process.
template <typename Work>
double milliseconds_of(const Work& work) {
    const std::clock_t begin = std::clock();
    work();
    return 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace copper::test
