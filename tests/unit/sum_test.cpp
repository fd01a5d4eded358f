#include "daemon/control/sum.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <iostream>

#include "base/json_text.hpp"
#include "daemon/control/timeline.hpp"
#include "daemon/node_metrics.hpp"
#include "wire/message.hpp"

namespace copper {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// What a node answers to verb::sum after the start-up of a job.
json node(std::uint32_t rank, std::size_t paths) {
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
    json answer = metrics_of({.fuse = fuse,
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

TEST(Sum, IsTheSameHoweverItIsAddedUp) {
    std::vector<json> nodes;
    std::vector<json> sums;
    for (std::uint32_t rank = 0; rank < 60; rank += 3) {
        nodes.insert(nodes.end(), {node(rank, 10), node(rank + 1, 10), node(rank + 2, 10)});
        sums.push_back(sum_of({node(rank, 10), sum_of({node(rank + 1, 10), node(rank + 2, 10)}, 10)}, 10));
    }
    const json at_once = sum_of(nodes, 10);
    EXPECT_EQ(sum_of(sums, 10), at_once);
    EXPECT_EQ(at_once["nodes"], 60U);
    EXPECT_EQ(at_once["serving"], 60U);
    EXPECT_EQ(at_once["uptime_seconds"], 69.0);
    EXPECT_EQ(at_once["fuse"]["requests"], 60 * 1000 + 59 * 30);
    EXPECT_EQ(at_once["top_paths"][0]["requests"], 60000U);
    EXPECT_EQ(timeline_from(at_once["timeline"]).steps().begin()->second[1], 60U * 17);
}

TEST(Sum, NamesTheNodesThatAreConspicuous) {
    std::vector<json> nodes;
    for (std::uint32_t rank = 990; rank < 1020; ++rank) {
        nodes.push_back(node(rank, 0));
    }
    const json named = sum_of(nodes, 0)["conspicuous"];
    ASSERT_EQ(named.size(), conspicuous_nodes_max);
    EXPECT_EQ(named[0]["host"], "nid100999") << "it is degraded";
    EXPECT_EQ(named[1]["host"], "nid101010") << "its programs waited longest";
}

TEST(Sum, SaysWhyNodesHaveLeft) {
    const auto knows = [](const json& departed) {
        return json{{"state", "serving"}, {"departed", departed}};
    };
    const auto below = sum_of({knows({{"3", "SIGTERM"}}), knows({{"4", "link"}})}, 0);
    EXPECT_EQ(sum_of({knows({{"3", "SIGTERM"}}), below}, 0)["departed"],
              (json{{"3", "SIGTERM"}, {"4", "link"}}));
}

TEST(Sum, OfNothingAndOfNonsense) {
    EXPECT_EQ(sum_of({}, 10)["nodes"], 0U);
    const json nonsense = {
        {"top_paths", {1, "x", {{"path", 3}}}}, {"timeline", 7}, {"conspicuous", 5}, {"departed", {1}}};
    EXPECT_EQ(sum_of({nonsense, node(1, 1)}, 10)["nodes"], 2U);
}

// Prints how much the answers of 10,000 nodes weigh, for docs/measurements.md.
// `copper stats` and `copper report` ask for 50 paths, `copper status` for none.
void check_sum_of_ten_thousand(std::size_t paths, std::size_t bytes_max) {
    auto one = node(1, 0);
    one.erase("timeline");             // as to verb::stats
    std::vector<std::string> five(5);  // a node's own answer, and those of its four children
    std::size_t nodes = 1;
    for (std::uint32_t i = 0; i < 5; ++i) {
        five[i] = json_line(sum_of({node(i, paths)}, paths));
    }
    std::clock_t time = 0;
    for (; nodes < 10000; nodes *= 5) {
        const std::clock_t begin = std::clock();
        std::vector<json> answers;
        for (const auto& text : five) {
            answers.push_back(parse_json(text));
        }
        const auto text = json_line(sum_of(answers, paths));
        time = std::clock() - begin;
        five.assign(5, text);
    }
    EXPECT_EQ(parse_json(five[0])["nodes"], nodes);
    EXPECT_LT(five[0].size(), bytes_max);
    std::cout << "answers of 10,000 nodes: " << 10000 * json_line(one).size() << " bytes; the sum of "
              << nodes << ": " << five[0].size() << " bytes, added up of five in "
              << 1000.0 * static_cast<double>(time) / CLOCKS_PER_SEC << " ms of processor time\n";
}

TEST(Sum, OfTenThousandNodesIsSmall) {
    check_sum_of_ten_thousand(50, answer_text_bytes_max / 8);
    check_sum_of_ten_thousand(0, 24 << 10U);
}

}  // namespace
}  // namespace copper
