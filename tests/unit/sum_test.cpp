#include "daemon/control/sum.hpp"

#include <gtest/gtest.h>

#include <iostream>

#include "base/json_text.hpp"
#include "daemon/control/timeline.hpp"
#include "tests/unit/node_answer.hpp"
#include "wire/message.hpp"

namespace copper {
namespace {

using nlohmann::json;
using test::milliseconds_of;
using test::node_answer;

TEST(Sum, IsTheSameHoweverItIsAddedUp) {
    std::vector<json> nodes;
    std::vector<json> sums;
    for (std::uint32_t rank = 0; rank < 60; rank += 3) {
        nodes.insert(nodes.end(),
                     {node_answer(rank, 10), node_answer(rank + 1, 10), node_answer(rank + 2, 10)});
        sums.push_back(sum_of(
            {node_answer(rank, 10), sum_of({node_answer(rank + 1, 10), node_answer(rank + 2, 10)}, 10)}, 10));
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
        nodes.push_back(node_answer(rank, 0));
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

TEST(Sum, TellsWhichFilesystemsDoNotAnswer) {
    const auto knows = [](const char* filesystem, std::uint64_t seconds) {
        return json{{"state", "serving"},
                    {"waiting", 50U},
                    {"silent", {{filesystem, {{"seconds", seconds}, {"nodes", 1U}}}}}};
    };
    const auto below = sum_of({knows("/a", 10), knows("/a", 30)}, 0);
    const auto sum = sum_of({knows("/a", 20), knows("/b", 5), below}, 0);
    EXPECT_EQ(sum["silent"],
              (json{{"/a", {{"seconds", 30U}, {"nodes", 3U}}}, {"/b", {{"seconds", 5U}, {"nodes", 1U}}}}));
    EXPECT_EQ(sum["waiting"], 200U);
}

TEST(Sum, TellsTheSlowestPaceOfEachFilesystem) {
    const auto knows = [](const char* filesystem, std::uint64_t time, bool is_serial) {
        return json{{"state", "serving"},
                    {"paces", {{filesystem, {{"operation_us", time}, {"is_serial", is_serial}}}}}};
    };
    const auto below = sum_of({knows("/a", 700, false), knows("/a", 300, true)}, 0);
    EXPECT_EQ(sum_of({knows("/a", 600, false), knows("/b", 5, false), below}, 0)["paces"],
              (json{{"/a", {{"operation_us", 700U}, {"is_serial", true}}},
                    {"/b", {{"operation_us", 5U}, {"is_serial", false}}}}));
    EXPECT_EQ(sum_of({json{{"paces", {{"/a", 7}, {"/b", {{"is_serial", "x"}}}}}}}, 0)["paces"],
              (json{{"/b", {{"operation_us", 0U}, {"is_serial", false}}}}));
}

TEST(Sum, OfNothingAndOfNonsense) {
    EXPECT_EQ(sum_of({}, 10)["nodes"], 0U);
    const json nonsense = {
        {"top_paths", {1, "x", {{"path", 3}}}}, {"timeline", 7}, {"conspicuous", 5}, {"departed", {1}}};
    EXPECT_EQ(sum_of({nonsense, node_answer(1, 1)}, 10)["nodes"], 2U);
}

// Prints how much the answers of 10,000 nodes weigh and take, for docs/notebook/.
// `copper stats` and `copper report` ask for 50 paths, `copper status` for none.
void check_sum_of_ten_thousand(std::size_t paths, std::size_t bytes_max) {
    auto one = node_answer(1, 0);
    one.erase("timeline");             // as to verb::stats
    std::vector<std::string> five(5);  // a node's own answer, and those of its four children
    std::size_t nodes = 1;
    double own_ms = 0;
    for (std::uint32_t i = 0; i < 5; ++i) {
        own_ms = milliseconds_of([&] { five[i] = json_line(sum_of({node_answer(i, paths)}, paths)); });
    }
    double turn_ms = 0;  // of the progress loop: it blocks the loop
    for (; nodes < 10000; nodes *= 5) {
        std::string text;
        turn_ms = milliseconds_of([&] {
            std::vector<json> answers;
            for (const auto& each : five) {
                answers.push_back(parse_json(each));
            }
            text = json_line(sum_of(answers, paths));
        });
        five.assign(5, text);
    }
    json sum;
    const double parse_ms = milliseconds_of([&] { sum = parse_json(five[0]); });
    EXPECT_EQ(sum["nodes"], nodes);
    EXPECT_LT(five[0].size(), bytes_max);
    std::cout << "answers of 10,000 nodes: " << 10000 * json_line(one).size() << " bytes; the sum of "
              << nodes << ": " << five[0].size() << " bytes. A node's own answer takes " << own_ms
              << " ms of processor time, adding up five " << turn_ms << " ms, parsing the sum " << parse_ms
              << " ms\n";
}

TEST(Sum, OfTenThousandNodesIsSmall) {
    check_sum_of_ten_thousand(50, answer_text_bytes_max / 8);
    check_sum_of_ten_thousand(0, 24 << 10U);
}

}  // namespace
}  // namespace copper
