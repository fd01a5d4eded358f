#include "tools/copper/look/statistics.hpp"

#include <gtest/gtest.h>

#include <iostream>

#include "base/json_text.hpp"
#include "daemon/control/sum.hpp"
#include "tests/unit/node_answer.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/look/page.hpp"
#include "tools/copper/nodes/ask_job.hpp"

namespace copper::cli {
namespace {

using nlohmann::json;

json node(std::uint64_t files_read, std::uint64_t file_opens) {
    return {{"host", "cn0"},
            {"state", "serving"},
            {"uptime_seconds", 12.7},
            {"fuse", {{"files_read", files_read}, {"bytes_read", 3U << 20U}}},
            {"backing", {{"file_opens", file_opens}, {"listings", 7U}, {"stats", 5U}, {"bytes", 1U << 20U}}},
            {"cache", {{"bytes", 1U << 20U}, {"budget_bytes", 1U << 30U}}}};
}

std::string summary(const std::vector<json>& nodes) {
    return statistics_summary(statistics_of({.job = "42", .nodes = nodes}, "/m", 0));
}

TEST(StatisticsSummary, AnswersInSixLines) {
    const json lost = {{"host", ""}, {"state", "lost"}};
    EXPECT_EQ(summary({node(90, 20), node(90, 0), lost}),
              "nodes         2 of 3 serve /m for 12 s\n"
              "files         180 read by your programs\n"
              "filesystem    20 files opened (9 times fewer), 14 directories read, 44 operations in all\n"
              "bytes         2 MiB from the filesystem, 6 MiB to your programs\n"
              "direct reads  0\n"
              "cache         2 MiB used of 2 GiB\n");
}

TEST(StatisticsSummary, TellsWhatAProfileSaved) {
    const auto line = [](std::uint64_t foretold, std::uint64_t unforeseen) {
        json replayed = node(90, 20);
        replayed["profile"] = {{"fetched", 100U},
                               {"bytes_fetched", 3U << 20U},
                               {"foretold", foretold},
                               {"unforeseen", unforeseen}};
        const auto text = summary({replayed, node(90, 0)});
        return text.substr(text.find("\nprofile") + 1);
    };
    EXPECT_EQ(line(96, 2),
              "profile       3 MiB fetched ahead; it named 96 of the 98 objects that programs on the first "
              "node used\n");
    EXPECT_EQ(line(0, 0), "profile       3 MiB fetched ahead\n");
}

TEST(StatisticsSummary, ClaimsNothingThatWasNotSaved) {
    for (const auto& [files, opens] :
         {std::pair(0U, 0U), std::pair(9U, 0U), std::pair(9U, 9U), std::pair(9U, 5U)}) {
        EXPECT_EQ(summary({node(files, opens)}).find("fewer"), std::string::npos);
    }
}

TEST(StatisticsOfSums, NameLostNodes) {
    ControlReply reply{.job = "42", .nodes = 4};
    const auto part = [&](std::uint32_t rank, const json& lost) {
        reply.parts.push_back(
            {rank, {{"nodes", 1}, {"lost", lost}, {"departed", {{"3", "it has left: x"}}}}});
    };
    part(0, {2, 3});
    reply.silent = {{2, "cn7"}};
    const auto lost = [&](const std::vector<std::string>& hosts) {
        std::string text;
        for (const auto& each : statistics_of(reply, hosts, "/m", 0).lost) {
            text += text_of(each, "rank") + " " + text_of(each, "host") + " " + text_of(each, "why") + "\n";
        }
        return text;
    };
    EXPECT_EQ(lost({}), "2 cn7 it does not answer\n3 - it has left: x\n");
    EXPECT_EQ(lost({"cn5", "cn6", "cnX", "cn8"}), "2 cn7 it does not answer\n3 cn8 it has left: x\n");
    part(2, {0, 1, 3});  // a successor, which calls all others lost
    EXPECT_EQ(lost({}), "3 - it has left: x\n");
}

// The job's answer to verb::sum. Each of five parts stands for a fifth of the nodes.
std::string sum_line(std::uint32_t nodes) {
    std::vector<json> parts;
    for (std::uint32_t i = 0; i < 5; ++i) {
        auto sum = sum_of({test::node_answer(i, reported_paths)}, reported_paths);
        sum["nodes"] = nodes / 5;
        parts.push_back(std::move(sum));
    }
    auto body = sum_of(parts, reported_paths);
    body["lost"] = json::array();
    return to_line(ControlReply{.job = "42", .nodes = nodes, .parts = {{.rank = 0, .body = body}}});
}

// The job's answer to verb::stats.
std::string each_line(std::uint32_t nodes) {
    ControlReply reply{.job = "42", .nodes = nodes};
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
        auto body = test::node_answer(rank, 0);
        body.erase("timeline");
        reply.parts.push_back({rank, std::move(body)});
    }
    return to_line(reply);
}

struct Kept {
    json statistics;
    bool asked_each = false;
};
// As `copper stop`.
Kept kept_of(const std::string& sum, const std::function<Result<std::string>()>& each) {
    Kept kept;
    const auto job = statistics_of(*parse_reply(sum), {}, "/m", reported_paths);
    kept.statistics = statistics_to_keep(job, [&] {
        kept.asked_each = true;
        return each().map([](const std::string& line) {
            return EachNode{.job = "42", .nodes = per_node(*parse_reply(line))};
        });
    });
    return kept;
}

// Prints what the statistics of nodes_kept_max and of 10,000 nodes weigh and take, for docs/notebook/.
TEST(StatisticsToKeep, OfTenThousandNodesAreASum) {
    const auto sum = sum_line(10000);
    Kept kept;
    std::string file;
    const auto keep = [&](const std::string& what, const std::string& asked,
                          const std::function<Result<std::string>()>& each) {
        const double ms = test::milliseconds_of([&] {
            kept = kept_of(asked, each);
            file = kept.statistics.dump(2);
        });
        std::cout << what << ": " << file.size() << " bytes, " << ms << " ms of processor time\n";
    };
    keep("10,000 nodes", sum, [] { return Result<std::string>(failed("asked for")); });
    EXPECT_FALSE(kept.asked_each);
    EXPECT_LT(file.size(), 100'000U);
    EXPECT_EQ(kept.statistics["nodes"], 10000U);
    EXPECT_EQ(kept.statistics["alive"], 10000U);
    EXPECT_EQ(kept.statistics["per_node"], json::array());
    EXPECT_EQ(kept.statistics["per_node_missing"], "the job has more than 1000 nodes");
    const auto page = report_page(kept.statistics);
    EXPECT_NE(page.find("10,000 of 10,000"), std::string::npos);
    EXPECT_NE(page.find("not each node's own: the job has more than 1000 nodes."), std::string::npos);

    const auto largest_sum = sum_line(nodes_kept_max);
    const auto each = each_line(nodes_kept_max);
    keep("1,000 nodes", largest_sum, [&] { return Result<std::string>(each); });
    EXPECT_TRUE(kept.asked_each);
    EXPECT_EQ(kept.statistics["per_node"].size(), nodes_kept_max);
    EXPECT_FALSE(kept.statistics.contains("per_node_missing"));
    EXPECT_EQ(report_page(kept.statistics).find("not each node's own"), std::string::npos);
}

TEST(StatisticsToKeep, AreTheSumIfNodesDoNotTell) {
    const auto kept = kept_of(sum_line(5), [] { return Result<std::string>(failed("it is <slow>\n  a")); });
    EXPECT_TRUE(kept.asked_each);
    EXPECT_EQ(kept.statistics["alive"], 5U);
    EXPECT_EQ(kept.statistics["totals"]["fuse"]["requests"], 5 * 1000 + 10);
    EXPECT_NE(report_page(kept.statistics).find("own: it is &lt;slow&gt;"), std::string::npos);
}

TEST(ReportPage, EscapesAllThatComesFromOutside) {
    const std::string strange = "<b>&\"'";
    const auto page =
        report_page({{"job", "job" + strange},
                     {"trees", {"/tree" + strange}},
                     {"totals", json::object()},
                     {"lost", {{{"host", "host" + strange}, {"why", "why" + strange}}}},
                     {"conspicuous", {{{"host", "slow" + strange}, {"state", "state" + strange}}}},
                     {"per_node_missing", "missing" + strange},
                     {"top_paths", {{{"path", "/path" + strange}, {"requests", 1U}, {"absent", 1U}}}}});
    EXPECT_EQ(page.find("<b>&"), std::string::npos);
    EXPECT_EQ(page.find(strange), std::string::npos);
    for (const auto* name : {"job", "/tree", "host", "why", "slow", "state", "missing", "/path"}) {
        EXPECT_NE(page.find(name + std::string("&lt;b&gt;&amp;&quot;&#39;")), std::string::npos) << name;
    }
}

TEST(InUnits, HasThreeDigits) {
    EXPECT_EQ(in_units(0), "0 bytes");
    EXPECT_EQ(in_units(999), "999 bytes");
    EXPECT_EQ(in_units(1010U << 10U), "0.986 MiB");
    EXPECT_EQ(in_units(1U << 30U), "1 GiB");
}

TEST(PerNode, NamesLostHostsThatTheLaunchKnows) {
    ControlReply reply{.job = "42", .nodes = 3};
    reply.parts.push_back({.rank = 0, .body = {{"host", "a.site"}, {"departed", {{"2", "it has left: x"}}}}});
    const auto lost = [](const json& each) { return text_of(each, "host") + " " + text_of(each, "why"); };
    auto nodes = per_node(reply, {"a", "b", "c"});
    EXPECT_EQ(lost(nodes[1]), "b it does not answer");
    EXPECT_EQ(lost(nodes[2]), "c it has left: x");
    EXPECT_EQ(lost(per_node(reply)[1]), "- it does not answer");
    reply.silent[1] = "a#1";
    EXPECT_EQ(lost(per_node(reply)[1]), "a#1 it does not answer");
    reply.silent.clear();
    // Rank 1 is elsewhere than expected: on the host that answers.
    nodes = per_node(reply, {"b", "a", "c"});
    EXPECT_EQ(lost(nodes[1]), "- it does not answer");
}

}  // namespace
}  // namespace copper::cli
