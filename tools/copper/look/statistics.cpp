#include "tools/copper/look/statistics.hpp"

#include <algorithm>
#include <map>

#include "daemon/control/metrics.hpp"
#include "daemon/control/sum.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/ask_job.hpp"
#include "tools/copper/nodes/launch_record.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

// Histograms serve to add nodes up. Readers want the quantiles.
void drop_buckets(json& groups) {
    if (const auto latencies = groups.find("latency_us"); latencies != groups.end()) {
        for (auto& latency : *latencies) {
            latency.erase("buckets");
        }
    }
}

// The groups of the sum.
json totals_of(const json& sum) {
    json totals = {{"latency_us", sum.at("latency_us")}};
    for (const auto& metric : metric_table()) {
        totals[metric.group][metric.name] = total(sum, metric.group, metric.name);
    }
    drop_buckets(totals);
    return totals;
}

std::vector<json> top_paths(const JobStatistics& job) {
    return most(job.sum.at("top_paths"), "requests", job.top_paths);
}

// A table of the most requested paths, if asked for.
std::string paths_table(const JobStatistics& job) {
    if (job.top_paths == 0) {
        return "";
    }
    std::vector<std::vector<std::string>> rows = {{"REQUESTS", "ABSENT", "BYTES_READ", "PATH"}};
    for (const auto& one : top_paths(job)) {
        rows.push_back({one["requests"].dump(), one["absent"].dump(), one["bytes_read"].dump(),
                        one["path"].get<std::string>()});
    }
    return "\n" + table(rows);
}

std::string paths_argument(std::size_t top_paths) {
    return top_paths > 0 ? std::to_string(top_paths) : "";
}

}  // namespace

Result<JobStatistics> ask_sum(const std::string& mount, const std::vector<Found>& found,
                              std::size_t top_paths, const std::string& command,
                              std::chrono::milliseconds patience) {
    return ask_job(mount, found, {verb::sum, paths_argument(top_paths), patience}, command)
        .map([&](const ControlReply& reply) {
            return statistics_of(reply, launched_hosts(mount), mount, top_paths);
        });
}

// Successors on this node answer for themselves, and are lost for the others.
JobStatistics statistics_of(const ControlReply& reply, const std::vector<std::string>& hosts,
                            const std::string& mount, std::size_t top_paths) {
    std::vector<json> answers;
    std::map<std::uint32_t, std::size_t> lost;  // and in how many answers
    for (const auto& part : reply.parts) {
        answers.push_back(part.body);
        for (const auto& rank : part.body.value("lost", std::vector<std::uint32_t>())) {
            ++lost[rank];
        }
    }
    JobStatistics job{.job = reply.job,
                      .mount = mount,
                      .nodes = reply.nodes,
                      .sum = sum_of(answers, top_paths),
                      .top_paths = top_paths};
    for (const auto& [rank, times] : lost) {
        if (times == answers.size()) {
            const auto named = reply.silent.find(rank);
            job.lost.push_back(lost_node(reply, rank,
                                         named != reply.silent.end() ? named->second
                                         : rank < hosts.size()       ? hosts[rank]
                                                                     : std::string()));
        }
    }
    return job;
}

Result<EachNode> ask_each_node(const std::string& mount, const std::vector<Found>& found,
                               std::size_t top_paths, std::chrono::milliseconds patience) {
    return ask_job(mount, found, {verb::stats, paths_argument(top_paths), patience}, "stats")
        .map([&](const ControlReply& reply) {
            return EachNode{.job = reply.job, .nodes = per_node(reply, launched_hosts(mount))};
        });
}

JobStatistics statistics_of(const EachNode& each, const std::string& mount, std::size_t top_paths) {
    std::vector<json> alive;
    std::copy_if(each.nodes.begin(), each.nodes.end(), std::back_inserter(alive),
                 [](const json& node) { return !is_lost(node); });
    return {.job = each.job,
            .mount = mount,
            .nodes = each.nodes.size(),
            .sum = sum_of(alive, top_paths),
            .top_paths = top_paths};
}

bool is_lost(const json& node) {
    return node.value("state", std::string()) == "lost";
}

json statistics_json(const EachNode& each, const JobStatistics& job, const json& sum) {
    auto nodes = each.nodes;
    for (auto& node : nodes) {
        drop_buckets(node);
        node.erase("top_paths");
    }
    auto waits = latency_summary(waits_of(job.sum));
    waits.erase("buckets");
    json report{{"schema", 1},  // "waits": of programs for lookups and reads, in microseconds

                {"job", job.job},
                {"mount", job.mount},
                {"nodes", job.nodes},
                {"alive", job.sum["nodes"]},
                {"uptime_seconds", job.sum["uptime_seconds"]},
                {"totals", totals_of(job.sum)},
                {"memory", job.sum["memory"]},
                {"waits", std::move(waits)},
                {"per_node", std::move(nodes)}};
    report["lost"] = json::array();
    std::copy_if(each.nodes.begin(), each.nodes.end(), std::back_inserter(report["lost"]), is_lost);
    for (const char* key : {"timeline", "conspicuous", "top_paths", "trees"}) {
        if (sum.contains(key)) {
            report[key] = sum[key];
        }
    }
    if (job.top_paths > 0) {
        report["top_paths"] = top_paths(job);
    }
    return report;
}

json statistics_to_keep(const JobStatistics& job, const std::function<Result<EachNode>()>& ask_each) {
    const auto each =
        job.nodes <= nodes_kept_max
            ? ask_each()
            : Result<EachNode>(failed("the job has more than " + std::to_string(nodes_kept_max) + " nodes"));
    if (each) {
        return statistics_json(*each, statistics_of(*each, job.mount, 0), job.sum);
    }
    auto kept = statistics_json({.job = job.job, .nodes = job.lost}, job, job.sum);
    kept["per_node_missing"] = each.error().reason;
    return kept;
}

std::uint64_t total(const json& sum, const char* group, const char* name) {
    return sum.value(json::json_pointer(std::string("/") + group + "/" + name), std::uint64_t{0});
}

std::uint64_t operations_of(const json& sum) {
    std::uint64_t operations = 0;
    for (const char* name : {"listings", "stats", "file_opens", "reads", "readlinks", "xattrs"}) {
        operations += total(sum, "backing", name);
    }
    return operations;
}

std::string times_fewer(std::uint64_t wanted, std::uint64_t made) {
    const auto times = made == 0 ? 0 : wanted / made;
    return times < 2 ? "" : " (" + std::to_string(times) + " times fewer)";
}

std::string statistics_text(const JobStatistics& job) {
    std::vector<std::vector<std::string>> rows;
    rows.push_back({"METRIC", "TOTAL", "UNIT"});
    for (const auto& metric : metric_table()) {
        rows.push_back({std::string(metric.group) + "." + metric.name,
                        std::to_string(total(job.sum, metric.group, metric.name)), metric.unit});
    }
    for (const auto& [name, latency] : job.sum["latency_us"].items()) {
        for (const char* part : {"p50", "p99", "max"}) {
            rows.push_back({"latency." + name + "." + part, text_of(latency, part), "microseconds"});
        }
    }
    for (const auto& [filesystem, pace] : job.sum["paces"].items()) {
        rows.push_back({"pace." + filesystem, text_of(pace, "operation_us"), "microseconds"});
    }
    for (const auto& [name, value] : job.sum["memory"].items()) {
        rows.push_back({"memory." + name, value.dump(), "bytes"});
    }
    return "job " + job.job + ", mount " + job.mount + ", " + text_of(job.sum, "nodes") + " of " +
           std::to_string(job.nodes) + " nodes alive, up " + text_of(job.sum, "uptime_seconds") + " s\n" +
           table(rows) + paths_table(job);
}

std::string statistics_summary(const JobStatistics& job) {
    const auto count = [&job](const char* group, const char* name) { return total(job.sum, group, name); };
    const auto bytes = [&count](const char* group, const char* name) { return in_units(count(group, name)); };
    const auto files = count("fuse", "files_read");
    const auto opens = count("backing", "file_opens");
    const auto direct = count("fallbacks", "direct_reads");
    std::vector<std::vector<std::string>> rows = {
        {"nodes", text_of(job.sum, "nodes") + " of " + std::to_string(job.nodes) + " serve " + job.mount +
                      " for " + text_of(job.sum, "uptime_seconds") + " s"},
        {"files", std::to_string(files) + " read by your programs"},
        {"filesystem", std::to_string(opens) + " files opened" + times_fewer(files, opens) + ", " +
                           std::to_string(count("backing", "listings")) + " directories read, " +
                           std::to_string(operations_of(job.sum)) + " operations in all"},
        {"bytes", bytes("backing", "bytes") + " from the filesystem, " + bytes("fuse", "bytes_read") +
                      " to your programs"},
        {"direct reads", std::to_string(direct) + (direct == 0 ? "" : " by nodes that could not wait")},
        {"cache", bytes("cache", "bytes") + " used of " + bytes("cache", "budget_bytes")}};
    if (const auto absent = count("fuse", "bytecode_absent"); absent != 0) {
        rows.push_back(
            {"bytecode", "missing in " + std::to_string(absent) +
                             " places, so each node compiles there; for good: python -m compileall DIR"});
    }
    if (count("profile", "fetched") != 0) {
        const auto foretold = count("profile", "foretold");
        const auto used = foretold + count("profile", "unforeseen");
        rows.push_back({"profile", bytes("profile", "bytes_fetched") + " fetched ahead" +
                                       (used == 0 ? ""
                                                  : "; it named " + std::to_string(foretold) + " of the " +
                                                        std::to_string(used) +
                                                        " objects that programs on the first node used")});
    }
    return table(rows) + paths_table(job);
}

}  // namespace copper::cli
