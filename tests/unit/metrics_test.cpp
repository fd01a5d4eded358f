#include "daemon/control/metrics.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "daemon/node_metrics.hpp"

namespace copper {
namespace {

using nlohmann::json;

struct Counted {
    FuseCounters fuse;
    BackingCounters backing;
    BackingCounters local;

    json metrics() const {
        return metrics_of({.fuse = fuse,
                           .backing = backing,
                           .local = local,
                           .cache = {.objects = 5, .bytes = 100, .budget_bytes = 1000},
                           .fabric = {.messages_sent = 9},
                           .mover = {.retries = 3},
                           .frames_refused = 1});
    }
};

TEST(Metrics, EachRowOfTheTableIsInANodesMetricsAndTheOtherWayRound) {
    const json node = Counted().metrics();
    std::set<std::string> in_table;
    for (const auto& row : metric_table()) {
        const std::string path = std::string("/") + row.group + "/" + row.name;
        EXPECT_TRUE(node.contains(json::json_pointer(path))) << path;
        EXPECT_TRUE(in_table.insert(path).second) << path;
    }
    for (const auto& [group, values] : node.items()) {
        if (group == "latency_us" || group == "memory") {
            continue;
        }
        for (const auto& [name, value] : values.items()) {
            EXPECT_TRUE(in_table.contains("/" + group + "/" + name)) << group << "." << name;
        }
    }
}

TEST(Metrics, TheKeysThatToolsReadAreThere) {
    // As `copper stats --json` prints it.
    const json expected = json::parse(R"({
        "fuse": {"requests": 0, "lookup": 0, "getattr": 0, "readdir": 0, "readlink": 0, "open": 0, "read": 0,
                 "bytes_read": 0},
        "backing": {"listings": 0, "stats": 0, "file_opens": 0, "reads": 0, "bytes": 0},
        "cache": {"objects": 0, "bytes": 0, "budget_bytes": 0, "hits": 0, "misses": 0, "evictions": 0},
        "fabric": {"messages_sent": 0, "bytes_sent": 0, "bytes_saved_by_compression": 0, "retries": 0},
        "fallbacks": {"direct_reads": 0, "deadline": 0, "peer_lost": 0, "corrupt": 0},
        "latency_us": {"lookup": {"p50": 0, "p99": 0, "max": 0}, "read": {"p50": 0, "p99": 0, "max": 0},
                       "turn": {"p50": 0, "p99": 0, "max": 0}}})");
    const json totals = add_up({Counted().metrics()});
    const json flat = expected.flatten();
    for (const auto& [path, value] : flat.items()) {
        EXPECT_TRUE(totals.contains(json::json_pointer(path))) << path;
    }
}

TEST(Metrics, NodesAddUp) {
    Counted one;
    one.fuse.lookup = 2;
    one.backing.bytes = 1000;
    one.fuse.lookup_latency.record(std::chrono::microseconds(10));
    Counted other;
    other.fuse.lookup = 40;
    other.fuse.lookup_latency.record(std::chrono::milliseconds(50));
    json first = one.metrics();
    json second = other.metrics();
    first["memory"]["rss_bytes"] = 100;
    second["memory"]["rss_bytes"] = 300;
    const json totals = add_up({first, second});
    EXPECT_EQ(totals["fuse"]["lookup"], 42);
    EXPECT_EQ(totals["backing"]["bytes"], 1000);
    EXPECT_EQ(totals["cache"]["budget_bytes"], 2000);
    EXPECT_EQ(totals["fabric"]["retries"], 6);
    EXPECT_EQ(totals["memory"]["rss_bytes_max"], 300);
    EXPECT_EQ(totals["memory"]["rss_bytes_total"], 400);
    EXPECT_GE(totals["latency_us"]["lookup"]["max"], 50000);
    EXPECT_LT(totals["latency_us"]["lookup"]["p50"], 20);
    EXPECT_EQ(totals["latency_us"]["read"]["max"], 0);
}

TEST(Metrics, ANodeThatSaysNonsenseCountsAsZero) {
    const json totals = add_up({json::object(), json::parse(R"({"fuse": 3, "cache": {"hits": "many"},
        "latency_us": {"lookup": {"buckets": [1, "x"]}}})")});
    EXPECT_EQ(totals["fuse"]["lookup"], 0);
    EXPECT_EQ(totals["cache"]["hits"], 0);
    EXPECT_EQ(add_up({})["fuse"]["lookup"], 0);
}

// The grammar's rules that matter: https://github.com/OpenObservability/OpenMetrics, "ABNF".
TEST(Metrics, OpenMetricsIsWellFormed) {
    json node = Counted().metrics();
    node["rank"] = 3;
    node["host"] = "cn\"1\\\n";
    const std::string text = to_open_metrics({node, node});
    ASSERT_TRUE(text.ends_with("# EOF\n"));
    const std::regex sample(
        R"re(([a-z_]+)\{rank="3",host="cn\\"1\\\\\\n"(,quantile="[0-9.]+")?\} [0-9.e+-]+)re");
    const std::regex head(R"(# (TYPE|UNIT|HELP) ([a-z_]+) (.+))");
    std::string family;
    std::string type;
    std::set<std::string> families;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line) && line != "# EOF";) {
        std::smatch match;
        if (std::regex_match(line, match, head)) {
            if (match[1] == "TYPE") {
                family = match[2];
                type = match[3];
                EXPECT_TRUE(families.insert(family).second) << line;
            } else if (match[1] == "UNIT") {
                EXPECT_TRUE(family.ends_with("_" + match[3].str())) << line;
            }
            EXPECT_EQ(match[2], family) << line;
            continue;
        }
        ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
        EXPECT_EQ(match[1], type == "counter" ? family + "_total" : family) << line;
    }
    EXPECT_GT(families.size(), metric_table().size());
}

TEST(Metrics, ResidentMemory) {
    EXPECT_GT(resident_bytes(), 100U << 10);
}

}  // namespace
}  // namespace copper
