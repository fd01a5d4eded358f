#include "daemon/control/sum.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "daemon/control/metrics.hpp"
#include "daemon/control/timeline.hpp"

namespace copper {
namespace {

using nlohmann::json;

std::uint64_t count_of(const json& object, const char* key) {
    const auto value = object.find(key);
    return value != object.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}

std::string text_in(const json& object, const char* key) {
    const auto value = object.find(key);
    return value != object.end() && value->is_string() ? value->get<std::string>() : std::string();
}

const json& list_in(const json& object, const char* key) {
    static const json none = json::array();
    const auto value = object.find(key);
    return value != object.end() && value->is_array() ? *value : none;
}

bool is_sum(const json& answer) {
    return answer.contains("nodes");
}

bool serves(const json& node) {
    return text_in(node, "state") == "serving";
}

// What a sum tells of one of its nodes.
json in_short(const json& node) {
    const auto waits = waits_of(node);
    return {{"rank", count_of(node, "rank")},
            {"host", text_in(node, "host")},
            {"state", text_in(node, "state")},
            {"why", text_in(node, "why")},
            {"ready_ms", count_of(node, "ready_ms")},
            {"requests", count_of(node.value("fuse", json::object()), "requests")},
            {"wait_p99_us", LatencyHistogram::quantile_us(waits, 0.99)},
            {"wait_max_us", LatencyHistogram::quantile_us(waits, 1.0)},
            {"direct_reads", count_of(node.value("fallbacks", json::object()), "direct_reads")},
            {"retries", count_of(node.value("fabric", json::object()), "retries")},
            {"rss_bytes", count_of(node.value("memory", json::object()), "rss_bytes")}};
}

json conspicuous(const std::vector<json>& answers) {
    std::vector<json> nodes;
    for (const auto& answer : answers) {
        if (is_sum(answer)) {
            const json& list = list_in(answer, "conspicuous");
            std::copy_if(list.begin(), list.end(), std::back_inserter(nodes),
                         [](const json& node) { return node.is_object(); });
        } else {
            nodes.push_back(in_short(answer));
        }
    }
    const auto place = [](const json& node) {
        return std::tuple(!serves(node), count_of(node, "wait_p99_us"), count_of(node, "wait_max_us"),
                          ~count_of(node, "rank"));
    };
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](const json& a, const json& b) { return place(a) > place(b); });
    nodes.resize(std::min(nodes.size(), conspicuous_nodes_max));
    return nodes;
}

json paths_of(const std::vector<json>& answers, std::size_t paths_max) {
    std::map<std::string, json> by_path;
    for (const auto& answer : answers) {
        for (const auto& one : list_in(answer, "top_paths")) {
            if (!one.is_object()) {
                continue;
            }
            const auto path = text_in(one, "path");
            auto& sum = by_path.try_emplace(path, json{{"path", path}}).first->second;
            for (const char* count : {"requests", "absent", "bytes_read"}) {
                sum[count] = count_of(sum, count) + count_of(one, count);
            }
        }
    }
    std::vector<json> all;
    for (auto& [path, sum] : by_path) {
        all.push_back(std::move(sum));
    }
    auto kept = most(all, "requests", paths_max);
    std::set<std::string> names;
    for (const auto& one : kept) {
        names.insert(text_in(one, "path"));
    }
    for (auto& one : most(all, "absent", paths_max)) {
        if (!names.contains(text_in(one, "path"))) {
            kept.push_back(std::move(one));
        }
    }
    std::size_t bytes = 0;
    const auto too_many = std::find_if(kept.begin(), kept.end(), [&bytes](const json& one) {
        constexpr std::size_t counts_bytes = 64;
        bytes += one["path"].get_ref<const std::string&>().size() + counts_bytes;
        return bytes > summed_paths_bytes_max;
    });
    kept.erase(too_many, kept.end());
    return most(kept, "requests", kept.size());
}

// Calls `take` with each name and value of the objects that the answers have at `key`.
template <typename Take>
void for_each_told(const std::vector<json>& answers, const char* key, const Take& take) {
    for (const auto& answer : answers) {
        const auto told = answer.find(key);
        if (told != answer.end() && told->is_object()) {
            for (const auto& [name, value] : told->items()) {
                take(name, value);
            }
        }
    }
}

json departed_of(const std::vector<json>& answers) {
    json departed = json::object();
    for_each_told(answers, "departed", [&](const std::string& rank, const json& why) {
        if (departed.size() < departed_told_max) {
            departed.emplace(rank, why);
        }
    });
    return departed;
}

json silent_of(const std::vector<json>& answers) {
    json silent = json::object();
    for_each_told(answers, "silent", [&](const std::string& filesystem, const json& found) {
        if (found.is_object() && (silent.size() < filesystems_told_max || silent.contains(filesystem))) {
            json& sum = silent[filesystem];
            sum = {{"seconds", std::max(count_of(sum, "seconds"), count_of(found, "seconds"))},
                   {"nodes", count_of(sum, "nodes") + count_of(found, "nodes")}};
        }
    });
    return silent;
}

json no_view_of(const std::vector<json>& answers) {
    json reasons = json::object();
    for_each_told(answers, "no_view", [&](const std::string& why, const json& found) {
        if (found.is_object() && (reasons.size() < reasons_told_max || reasons.contains(why))) {
            json& sum = reasons[why];
            sum = {{"nodes", count_of(sum, "nodes") + count_of(found, "nodes")}};
        }
    });
    return reasons;
}

json paces_of(const std::vector<json>& answers) {
    json paces = json::object();
    for_each_told(answers, "paces", [&](const std::string& filesystem, const json& found) {
        if (found.is_object() && (paces.size() < filesystems_told_max || paces.contains(filesystem))) {
            json& sum = paces[filesystem];
            const auto is_serial = [](const json& one) {
                return one.is_object() && one.value("is_serial", json()) == true;
            };
            sum = {{"operation_us", std::max(count_of(sum, "operation_us"), count_of(found, "operation_us"))},
                   {"is_serial", is_serial(sum) || is_serial(found)}};
        }
    });
    return paces;
}

Timeline timeline_of(const std::vector<json>& answers) {
    Timeline sum;
    for (const auto& answer : answers) {
        try {
            sum.add(timeline_from(answer.at("timeline")));
        } catch (const std::exception&) {  // it has none
        }
    }
    return sum;
}

}  // namespace

LatencyHistogram::Buckets waits_of(const json& node) {
    auto waits = buckets_of(node, "lookup");
    const auto reads = buckets_of(node, "read");
    std::transform(waits.begin(), waits.end(), reads.begin(), waits.begin(), std::plus<>());
    return waits;
}

std::vector<json> most(const std::vector<json>& paths, const char* count, std::size_t paths_max) {
    std::vector<json> found;
    std::copy_if(paths.begin(), paths.end(), std::back_inserter(found),
                 [&](const json& path) { return count_of(path, count) > 0; });
    std::stable_sort(found.begin(), found.end(),
                     [&](const json& a, const json& b) { return count_of(a, count) > count_of(b, count); });
    found.resize(std::min(found.size(), paths_max));
    return found;
}

json sum_of(const std::vector<json>& answers, std::size_t paths_max) {
    json sum = add_up(answers);
    std::uint64_t nodes = 0;
    std::uint64_t serving = 0;
    std::uint64_t waiting = 0;
    double uptime = 0;
    for (const auto& answer : answers) {
        nodes += is_sum(answer) ? count_of(answer, "nodes") : 1;
        waiting += count_of(answer, "waiting");
        serving += is_sum(answer) ? count_of(answer, "serving") : (serves(answer) ? 1U : 0U);
        if (const auto seconds = answer.find("uptime_seconds");
            seconds != answer.end() && seconds->is_number()) {
            uptime = std::max(uptime, seconds->get<double>());
        }
        for (const char* key : {"mount", "trees"}) {
            if (!sum.contains(key) && answer.contains(key)) {
                sum[key] = answer[key];
            }
        }
    }
    sum["nodes"] = nodes;
    sum["serving"] = serving;
    sum["uptime_seconds"] = uptime;
    sum["waiting"] = waiting;
    sum["silent"] = silent_of(answers);
    sum["paces"] = paces_of(answers);
    sum["no_view"] = no_view_of(answers);
    sum["departed"] = departed_of(answers);
    sum["timeline"] = to_json(timeline_of(answers));
    sum["conspicuous"] = conspicuous(answers);
    sum["top_paths"] = paths_of(answers, paths_max);
    return sum;
}

}  // namespace copper
