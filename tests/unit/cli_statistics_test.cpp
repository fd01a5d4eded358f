#include "tools/copper/statistics.hpp"

#include <gtest/gtest.h>

#include "tools/copper/common.hpp"

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
