#include "tools/copper/report.hpp"

#include <algorithm>
#include <map>

#include "daemon/control/metrics.hpp"
#include "tools/copper/common.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

std::vector<json> alive(const JobStatistics& job) {
    std::vector<json> nodes;
    std::copy_if(job.nodes.begin(), job.nodes.end(), std::back_inserter(nodes),
                 [](const json& node) { return !is_lost(node); });
    return nodes;
}

// Histograms serve to add nodes up. Readers of the report want the quantiles.
void drop_buckets(json& groups) {
    if (const auto latencies = groups.find("latency_us"); latencies != groups.end()) {
        for (auto& latency : *latencies) {
            latency.erase("buckets");
        }
    }
}

double uptime_of(const std::vector<json>& nodes) {
    double longest = 0;
    for (const auto& node : nodes) {
        longest = std::max(longest, node.value("uptime_seconds", 0.0));
    }
    return longest;
}

// Adds the paths of the nodes up. Approximate, because each node names only its own most frequent paths.
json top_paths(const std::vector<json>& nodes, std::size_t paths_max) {
    std::map<std::string, json> by_path;
    for (const auto& node : nodes) {
        for (const auto& one : node.value("top_paths", json::array())) {
            auto& sum = by_path.try_emplace(one.at("path"), json{{"path", one.at("path")}}).first->second;
            for (const char* count : {"requests", "absent", "bytes_read"}) {
                sum[count] = sum.value(count, std::uint64_t{0}) + one.value(count, std::uint64_t{0});
            }
        }
    }
    std::vector<json> sums;
    for (auto& [path, sum] : by_path) {
        sums.push_back(std::move(sum));
    }
    std::stable_sort(sums.begin(), sums.end(),
                     [](const json& a, const json& b) { return a["requests"] > b["requests"]; });
    sums.resize(std::min(sums.size(), paths_max));
    return sums;
}

// A table of the most requested paths, if the report has them.
std::string paths_table(const json& report) {
    if (!report.contains("top_paths")) {
        return "";
    }
    std::vector<std::vector<std::string>> rows = {{"REQUESTS", "ABSENT", "BYTES_READ", "PATH"}};
    for (const auto& one : report["top_paths"]) {
        rows.push_back({one["requests"].dump(), one["absent"].dump(), one["bytes_read"].dump(),
                        one["path"].get<std::string>()});
    }
    return "\n" + table(rows);
}

// Without Copper, each node would open each of its files.
std::string times_fewer(std::uint64_t files_read, std::uint64_t file_opens) {
    const auto times = file_opens == 0 ? 0 : files_read / file_opens;
    return times < 2 ? "" : " (" + std::to_string(times) + " times fewer)";
}

}  // namespace

bool is_lost(const json& node) {
    return node.value("state", std::string()) == "lost";
}

json statistics_json(const JobStatistics& job) {
    const auto nodes = alive(job);
    auto totals = add_up(nodes);
    drop_buckets(totals);
    auto memory = totals.value("memory", json{{"rss_bytes_max", 0}, {"rss_bytes_total", 0}});
    totals.erase("memory");
    auto each = job.nodes;
    for (auto& node : each) {
        drop_buckets(node);
        node.erase("top_paths");
    }
    json report{{"schema", 1},
                {"job", job.job},
                {"mount", job.mount},
                {"nodes", job.nodes.size()},
                {"alive", nodes.size()},
                {"uptime_seconds", uptime_of(nodes)},
                {"totals", std::move(totals)},
                {"memory", std::move(memory)},
                {"per_node", std::move(each)}};
    if (job.top_paths > 0) {
        report["top_paths"] = top_paths(nodes, job.top_paths);
    }
    return report;
}

std::string statistics_text(const JobStatistics& job) {
    const auto report = statistics_json(job);
    std::vector<std::vector<std::string>> rows;
    rows.push_back({"METRIC", "TOTAL", "UNIT"});
    for (const auto& metric : metric_table()) {
        const auto group = report["totals"].find(metric.group);
        if (group != report["totals"].end() && group->contains(metric.name) &&
            (*group)[metric.name].is_number()) {
            rows.push_back(
                {std::string(metric.group) + "." + metric.name, (*group)[metric.name].dump(), metric.unit});
        }
    }
    const json latencies = report["totals"].value("latency_us", json::object());
    for (const auto& [name, latency] : latencies.items()) {
        for (const char* part : {"p50", "p99", "max"}) {
            rows.push_back({"latency." + name + "." + part, text_of(latency, part), "microseconds"});
        }
    }
    for (const auto& [name, value] : report["memory"].items()) {
        rows.push_back({"memory." + name, value.dump(), "bytes"});
    }
    return "job " + job.job + ", mount " + job.mount + ", " + report["alive"].dump() + " of " +
           report["nodes"].dump() + " nodes alive, up " + text_of(report, "uptime_seconds") + " s\n" +
           table(rows) + paths_table(report);
}

std::string statistics_summary(const JobStatistics& job) {
    const auto report = statistics_json(job);
    const auto count = [&report](const char* group, const char* name) {
        return report["totals"].value(json::json_pointer(std::string("/") + group + "/" + name),
                                      std::uint64_t{0});
    };
    const auto bytes = [&count](const char* group, const char* name) { return in_units(count(group, name)); };
    const auto files = count("fuse", "files_read");
    const auto opens = count("backing", "file_opens");
    const auto listings = count("backing", "listings");
    const auto operations = listings + opens + count("backing", "stats") + count("backing", "reads") +
                            count("backing", "readlinks") + count("backing", "xattrs");
    const auto direct = count("fallbacks", "direct_reads");
    return table({{"nodes", report["alive"].dump() + " of " + report["nodes"].dump() + " serve " + job.mount +
                                " for " + text_of(report, "uptime_seconds") + " s"},
                  {"files", std::to_string(files) + " read by your programs"},
                  {"filesystem", std::to_string(opens) + " files opened" + times_fewer(files, opens) + ", " +
                                     std::to_string(listings) + " directories read, " +
                                     std::to_string(operations) + " operations in all"},
                  {"bytes", bytes("backing", "bytes") + " from the filesystem, " +
                                bytes("fuse", "bytes_read") + " to your programs"},
                  {"direct reads",
                   std::to_string(direct) + (direct == 0 ? "" : " by nodes that could not wait")},
                  {"cache", bytes("cache", "bytes") + " used of " + bytes("cache", "budget_bytes")}}) +
           paths_table(report);
}

}  // namespace copper::cli
