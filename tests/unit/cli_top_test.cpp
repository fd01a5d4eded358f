#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "daemon/control/sum.hpp"
#include "tests/unit/node_answer.hpp"
#include "tools/copper/look/top_view.hpp"

namespace copper::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr std::size_t paths = 40;

struct Job {
    std::uint32_t nodes = 0;
    std::set<std::uint32_t> lost = {};
    std::set<std::uint32_t> degraded = {};
};

// At second `second` of a job.
Sample sample(const Job& job, std::uint64_t second) {
    // The answers of more nodes differ in nothing that the view shows.
    const std::uint32_t told_max = 60;
    ControlReply reply{.job = "4711", .nodes = job.nodes};
    std::vector<json> answers;
    for (std::uint32_t rank = 0; rank < job.nodes; ++rank) {
        if (job.lost.contains(rank)) {
            reply.silent[rank] = "nid" + std::to_string(100000 + rank);
            continue;
        }
        if (answers.size() < told_max || job.degraded.contains(rank)) {
            answers.push_back(test::node_answer(rank, paths));
            answers.back()["state"] = job.degraded.contains(rank) ? "degraded" : "serving";
            answers.back()["trees"] = {"/lustre/sw/conda"};
            answers.back()["fuse"]["requests"] = 1000 * second;
        }
    }
    json sum = sum_of(answers, paths);
    sum["serving"] = job.nodes - job.lost.size() - job.degraded.size();
    sum["lost"] = job.lost;
    if (job.lost.contains(17)) {
        sum["departed"]["17"] = "killed: signal 9 (Killed)";
    }
    reply.parts.push_back({.rank = 0, .body = std::move(sum)});
    return {.job = statistics_of(reply, {}, "/tmp/user/copper", paths),
            .at = std::chrono::steady_clock::time_point() + std::chrono::seconds(second)};
}

Lines view(const Job& job, std::size_t width = top_columns_min, std::size_t height = top_lines_min - 1) {
    return top_view(sample(job, 11), sample(job, 10), width, height);
}

// The first line that begins with `begin`; nothing if there is none.
std::string line_of(const Lines& lines, const std::string& begin) {
    const auto found = std::ranges::find_if(lines, [&](const auto& line) { return line.starts_with(begin); });
    return found == lines.end() ? "" : *found;
}

std::size_t place_of(const Lines& lines, const std::string& part) {
    const auto found =
        std::ranges::find_if(lines, [&](const auto& line) { return line.find(part) != line.npos; });
    return static_cast<std::size_t>(found - lines.begin());
}

TEST(TopView, NamesLostAndDegradedNodesAmongAThousand) {
    const auto lines = view({.nodes = 1000, .lost = {17}, .degraded = {333}});
    EXPECT_EQ(lines[0], "Copper, job 4711: 998 of 1000 nodes serve, for 343 s");
    EXPECT_EQ(lines[1], "mirror of /lustre/sw/conda at /tmp/user/copper");
    EXPECT_EQ(line_of(lines, "nid100017"), "nid100017                 lost: killed: signal 9 (Killed)");
    EXPECT_EQ(line_of(lines, "nid100333"),
              "nid100333                          4 ms          4 ms             0  degraded");
    EXPECT_EQ(line_of(lines, "requests of programs"),
              "requests of programs                     61000        671000");
}

TEST(TopView, NamesTheSlowestNodes) {
    // The tests' node 1010 is slow.
    const auto lines = view({.nodes = 1020, .degraded = {5, 1010}}, 120, 50);
    const auto first = place_of(lines, "LOST, ") + 1;
    EXPECT_TRUE(lines[first].starts_with("nid101010 ")) << lines[first];
    EXPECT_TRUE(lines[first + 1].starts_with("nid100005 ")) << lines[first + 1];
    EXPECT_TRUE(lines[first + 2].ends_with(" 0")) << "it serves: " << lines[first + 2];
}

TEST(TopView, LostNodesLeaveRoomForDegradedOnes) {
    Job job{.nodes = 1000, .degraded = {333, 334, 335, 336}};
    for (std::uint32_t rank = 0; rank < 200; ++rank) {
        job.lost.insert(rank);
    }
    const auto small = view(job);
    EXPECT_NE(line_of(small, "nid100000"), "");
    EXPECT_EQ(line_of(small, "and "), "and 199 more lost nodes");
    EXPECT_NE(line_of(small, "nid100333"), "");
    const auto large = view(job, 200, 80);
    EXPECT_NE(line_of(large, "nid100026"), "");
    EXPECT_EQ(line_of(large, "and "), "and 173 more lost nodes");
    EXPECT_NE(line_of(large, "nid100336"), "");
    job.degraded.clear();
    EXPECT_EQ(line_of(view(job), "and "), "and 198 more lost nodes");
}

void check_fits(const Sample& before, const Sample& now, std::size_t width, std::size_t height) {
    const auto lines = top_view(now, before, width, height);
    EXPECT_LE(lines.size(), height);
    for (const auto& line : lines) {
        EXPECT_LE(line.size(), width);
        EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; })) << line;
    }
    if (width >= top_columns_min && height >= top_lines_min - 1) {
        EXPECT_NE(line_of(lines, "cache used"), "");
        EXPECT_LT(place_of(lines, "package/0"), lines.size() - 2) << width << "x" << height;
    }
}

TEST(TopView, FitsTheWindow) {
    for (const Job& job : {Job{.nodes = 1}, Job{.nodes = 1000, .lost = {17, 18, 19}, .degraded = {333}}}) {
        const auto before = sample(job, 10);
        const auto now = sample(job, 11);
        for (const std::size_t width : {1U, 20U, 80U, 81U, 132U, 300U}) {
            for (const std::size_t height : {1U, 10U, 14U, 23U, 24U, 50U, 200U}) {
                check_fits(before, now, width, height);
            }
        }
    }
}

TEST(TopView, NodesOfOneMachineHaveTheirRanks) {
    auto now = sample({.nodes = 3, .degraded = {1}}, 1);
    for (auto& node : now.job.sum["conspicuous"]) {
        node["host"] = "login";
    }
    const auto lines = top_view(now, std::nullopt, 80, 23);
    EXPECT_TRUE(line_of(lines, "login#1 ").ends_with("  degraded")) << line_of(lines, "login#1 ");
    for (const auto* name : {"login#0 ", "login#2 "}) {
        EXPECT_TRUE(line_of(lines, name).ends_with(" 0")) << "it serves: " << line_of(lines, name);
    }
    EXPECT_EQ(line_of(lines, "LOST, DEGRADED").substr(0, 27), "LOST, DEGRADED, OR WAITING ")
        << "healthy nodes are there, too";
}

TEST(TopView, LongNamesHideNoReason) {
    auto now = sample({.nodes = 2, .lost = {1}}, 1);
    now.job.lost[0]["host"] = std::string(70, 'x') + ".site";
    now.job.lost[0]["why"] = "killed\x1b[2J";
    EXPECT_EQ(line_of(top_view(now, std::nullopt, 80, 23), "..."),
              "...xxxxxxxxxxxxxxxx.site  lost: killed?[2J");
}

// Sections and numbers stay where they are, whatever happens to nodes.
void check_calm(const Lines& before, const Lines& lines) {
    for (const char* head : {"PER SECOND", "cache used", "LOST, ", "HOTTEST PATHS"}) {
        EXPECT_EQ(place_of(lines, head), place_of(before, head)) << head;
    }
    EXPECT_EQ(lines.size(), before.size());
    for (auto at = place_of(lines, "PER SECOND"); at < place_of(lines, "cache used"); ++at) {
        for (const std::size_t end : {46U, 60U}) {
            EXPECT_NE(lines[at][end - 1], ' ') << lines[at];
        }
    }
}

TEST(TopView, IsCalm) {
    for (const std::uint32_t nodes : {4U, 30U, 1000U}) {
        const auto healthy = sample({.nodes = nodes}, 10);
        for (const Job& job :
             {Job{.nodes = nodes}, Job{.nodes = nodes, .degraded = {1}},
              Job{.nodes = nodes, .lost = {1}, .degraded = {2}}, Job{.nodes = nodes, .lost = {1, 2, 3}}}) {
            SCOPED_TRACE(std::to_string(nodes) + " nodes, lost: " + std::to_string(job.lost.size()));
            const auto now = sample(job, 11);
            for (const std::size_t height : {23U, 24U, 50U, 120U}) {
                check_calm(top_view(healthy, std::nullopt, 100, height), top_view(now, healthy, 100, height));
            }
        }
    }
}

}  // namespace
}  // namespace copper::cli
