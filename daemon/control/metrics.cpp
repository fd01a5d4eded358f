#include "daemon/control/metrics.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "base/latency_histogram.hpp"

namespace copper {
namespace {

using nlohmann::json;

struct Latency {
    const char* name;
    const char* family;  // in OpenMetrics
    const char* help;
};
constexpr std::array latencies = {
    Latency{"lookup", "copper_fuse_lookup_latency_seconds", "Time from a lookup request to its reply"},
    Latency{"read", "copper_fuse_read_latency_seconds", "Time from a read request to its reply"},
    Latency{"turn", "copper_progress_turn_latency_seconds",
            "Time for which the progress loop worked and answered nobody"}};
constexpr double microsecond = 1e-6;  // in seconds

std::vector<MetricRow> make_table() {
    constexpr auto counter = MetricKind::counter;
    constexpr auto gauge = MetricKind::gauge;
    std::vector<MetricRow> rows = {
        {"fuse", "requests", counter, "requests", "Requests from the kernel, of any kind"},
        {"fuse", "lookup", counter, "requests", "Requests for one name"},
        {"fuse", "getattr", counter, "requests", "Requests for attributes"},
        {"fuse", "readdir", counter, "requests", "Requests for a part of a directory"},
        {"fuse", "readlink", counter, "requests", "Requests for a symbolic link's target"},
        {"fuse", "open", counter, "requests", "Requests to open a file"},
        {"fuse", "read", counter, "requests", "Requests for a file's bytes"},
        {"fuse", "files_read", counter, "files",
         "Files that programs read; on each node, the kernel answers for files that it keeps"},
        {"fuse", "ioctl", counter, "requests",
         "isatty() and the like, which the kernel never answers itself"},
        {"fuse", "bytecode_absent", counter, "names",
         "Files of Python's bytecode, or whole directories of it, that were looked for and are not there"},
        {"fuse", "bytes_read", counter, "bytes", "Bytes replied to read requests"},
        {"fuse", "bytes_filled", counter, "bytes", "Bytes that the kernel keeps before programs ask"},
        {"fuse", "siblings_fetched", counter, "files", "Files fetched ahead as others beside them were used"},
        {"fuse", "siblings_used", counter, "files", "Of those, files that were used"},
        {"fuse", "imports_fetched", counter, "files",
         "Modules of Python fetched ahead as a module that names them was read"},
        {"fuse", "imports_used", counter, "files", "Of those, modules that were used"},
        {"fuse", "libraries_fetched", counter, "files",
         "Libraries fetched ahead as a library that needs them was read"},
        {"fuse", "libraries_used", counter, "files", "Of those, libraries that were used"},
        {"cache", "objects", gauge, "objects", "Objects kept"},
        {"cache", "bytes", gauge, "bytes", "Memory taken by kept objects"},
        {"cache", "budget_bytes", gauge, "bytes", "Memory that kept objects may take"},
        {"cache", "hits", counter, "objects", "Requests answered at once"},
        {"cache", "misses", counter, "objects", "Requests that had to wait for an object"},
        {"cache", "evictions", counter, "objects", "Objects evicted, or not kept, for lack of memory"},
        {"fabric", "messages_sent", counter, "messages", "Messages sent to other nodes"},
        {"fabric", "bytes_sent", counter, "bytes", "Bytes sent to other nodes"},
        {"fabric", "messages_received", counter, "messages", "Messages from other nodes"},
        {"fabric", "bytes_received", counter, "bytes", "Bytes from other nodes"},
        {"fabric", "messages_dropped", counter, "messages",
         "Messages dropped because too many waited for their addressee"},
        {"fabric", "frames_refused", counter, "messages",
         "Messages refused: from outside the job, malformed, or with a wrong checksum"},
        {"fabric", "bytes_saved_by_compression", counter, "bytes",
         "Bytes that compression kept off the network"},
        {"fabric", "interests_sent", counter, "messages",
         "Requests for an object passed on towards its reader"},
        {"fabric", "interests_refused", counter, "messages",
         "Requests for an object refused: too many waiting, or too many hops"},
        {"fabric", "interests_merged", counter, "messages", "Requests that joined an equal one"},
        {"fabric", "publications_sent", counter, "messages", "Objects sent, counted for each addressee"},
        {"fabric", "duplicates", counter, "messages", "Objects received that brought nothing new"},
        {"fabric", "retries", counter, "messages", "Requests for an object sent again"},
        {"fabric", "passed_on", counter, "reads",
         "Reads that failed or were slow, and were passed on to another node"},
        {"fabric", "resignations", counter, "times",
         "Times that a node stopped reading for others because another node could read what it could not"},
        {"fabric", "passed_over", counter, "messages",
         "Objects not sent to a node that is slow to take them"},
        {"fabric", "unshared_reads", counter, "reads", "Reads of files that no other node reads"},
        {"profile", "fetched", counter, "objects", "Objects fetched ahead because an earlier job used them"},
        {"profile", "bytes_fetched", counter, "bytes", "Bytes of files among them"},
        {"profile", "foretold", counter, "objects",
         "Objects that programs on rank 0 used and the profile foretold: nobody waited for the filesystem"},
        {"profile", "unforeseen", counter, "objects", "Other objects that programs on rank 0 used"},
        {"fallbacks", "direct_reads", counter, "reads", "Direct reads of the backing filesystem"},
        {"fallbacks", "deadline", counter, "reads", "Direct reads because an object was late"},
        {"fallbacks", "peer_lost", counter, "nodes", "Nodes declared dead"},
        {"fallbacks", "corrupt", counter, "reads", "Objects refused because of a wrong checksum"},
    };
    for (const char* group : {"backing", "local"}) {
        rows.push_back({group, "listings", counter, "calls", "Directories read"});
        rows.push_back({group, "stats", counter, "calls", "statx calls"});
        rows.push_back({group, "file_opens", counter, "calls", "Files opened"});
        rows.push_back({group, "reads", counter, "calls", "Read calls, and searches for holes"});
        rows.push_back({group, "bytes", counter, "bytes", "Bytes read"});
        rows.push_back({group, "readlinks", counter, "calls", "readlink calls"});
        rows.push_back({group, "xattrs", counter, "calls", "Extended attribute calls"});
    }
    return rows;
}

const char* where(const std::string& group) {
    if (group == "backing") {
        return " on the backing filesystem, within the mirrored trees";
    }
    return group == "local" ? ", outside the mirrored trees" : "";
}

// 0 if the node reports no number: it may run another version.
std::uint64_t value_of(const json& node, const MetricRow& row) {
    const auto group = node.find(row.group);
    if (group == node.end() || !group->is_object()) {
        return 0;
    }
    const auto value = group->find(row.name);
    return value != group->end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}

// Of a node's answer, or of a sum of them.
std::uint64_t rss_of(const json& node, const char* key = "rss_bytes_max") {
    const json memory = node.value("memory", json::object());
    return memory.value(key, memory.value("rss_bytes", std::uint64_t{0}));
}

// The OpenMetrics name. It ends with the unit, once.
std::string family_of(const MetricRow& row) {
    std::string family = std::string("copper_") + row.group;
    std::istringstream words(row.name);
    for (std::string word; std::getline(words, word, '_');) {
        if (word != row.unit) {
            family += "_" + word;
        }
    }
    return family + "_" + row.unit;
}

// Label values escape backslash, quote and line feed.
std::string label(const std::string& text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '\\' || c == '"') {
            escaped += '\\';
        }
        escaped += c == '\n' ? "\\n" : std::string(1, c);
    }
    return escaped;
}

std::string labels_of(const json& node) {
    if (const auto job = node.find("job"); job != node.end()) {
        return "job=\"" + label(job->get<std::string>()) + "\"";
    }
    const auto rank = node.value("rank", std::uint64_t{0});
    return "rank=\"" + std::to_string(rank) + "\",host=\"" + label(node.value("host", std::string())) + "\"";
}

void print_head(std::ostream& out, const std::string& family, const char* type, const std::string& unit,
                const std::string& help) {
    out << "# TYPE " << family << ' ' << type << "\n# UNIT " << family << ' ' << unit << "\n# HELP " << family
        << ' ' << help << '\n';
}

void print_row(std::ostream& out, const MetricRow& row, const std::vector<json>& nodes) {
    const bool counts = row.kind == MetricKind::counter;
    const std::string family = family_of(row);
    print_head(out, family, counts ? "counter" : "gauge", row.unit, std::string(row.help) + where(row.group));
    for (const auto& node : nodes) {
        out << family << (counts ? "_total" : "") << '{' << labels_of(node) << "} " << value_of(node, row)
            << '\n';
    }
}

void print_latency(std::ostream& out, const Latency& latency, const std::vector<json>& nodes) {
    print_head(out, latency.family, "summary", "seconds", latency.help);
    for (const auto& node : nodes) {
        const auto buckets = buckets_of(node, latency.name);
        for (const double quantile : {0.5, 0.99, 1.0}) {
            const auto latency_us = static_cast<double>(LatencyHistogram::quantile_us(buckets, quantile));
            out << latency.family << '{' << labels_of(node) << ",quantile=\"" << quantile << "\"} "
                << latency_us * microsecond << '\n';
        }
    }
}

}  // namespace

const std::vector<MetricRow>& metric_table() {
    static const std::vector<MetricRow> table = make_table();
    return table;
}

LatencyHistogram::Buckets buckets_of(const json& node, const char* name) {
    LatencyHistogram::Buckets buckets = {};
    const json none = json::array();
    const json& texts = node.value(json::json_pointer(std::string("/latency_us/") + name + "/buckets"), none);
    for (std::size_t i = 0; i < std::min(texts.size(), buckets.size()); ++i) {
        buckets[i] = texts[i].is_number_unsigned() ? texts[i].get<std::uint64_t>() : 0;
    }
    return buckets;
}

json latency_summary(const LatencyHistogram::Buckets& buckets) {
    auto used = buckets.size();
    while (used > 0 && buckets[used - 1] == 0) {
        --used;
    }
    return {{"p50", LatencyHistogram::quantile_us(buckets, 0.5)},
            {"p99", LatencyHistogram::quantile_us(buckets, 0.99)},
            {"max", LatencyHistogram::quantile_us(buckets, 1.0)},
            {"buckets", std::vector<std::uint64_t>(buckets.begin(),
                                                   buckets.begin() + static_cast<std::ptrdiff_t>(used))}};
}

json add_up(const std::vector<json>& nodes) {
    json totals;
    for (const auto& row : metric_table()) {
        std::uint64_t sum = 0;
        for (const auto& node : nodes) {
            sum += value_of(node, row);
        }
        totals[row.group][row.name] = sum;
    }
    for (const auto& [name, family, help] : latencies) {
        LatencyHistogram::Buckets sum = {};
        for (const auto& node : nodes) {
            const auto buckets = buckets_of(node, name);
            std::transform(sum.begin(), sum.end(), buckets.begin(), sum.begin(), std::plus<>());
        }
        totals["latency_us"][name] = latency_summary(sum);
    }
    std::uint64_t max = 0;
    std::uint64_t total = 0;
    for (const auto& node : nodes) {
        max = std::max(max, rss_of(node));
        total += rss_of(node, "rss_bytes_total");
    }
    totals["memory"] = {{"rss_bytes_max", max}, {"rss_bytes_total", total}};
    return totals;
}

std::string to_open_metrics(const std::vector<json>& nodes) {
    std::ostringstream out;
    for (const auto& row : metric_table()) {
        print_row(out, row, nodes);
    }
    for (const Latency& latency : latencies) {
        print_latency(out, latency, nodes);
    }
    const std::string rss = "copper_memory_rss_bytes";
    print_head(out, rss, "gauge", "bytes", "Resident memory of the daemon");
    for (const auto& node : nodes) {
        out << rss << "{" << labels_of(node) << "} " << rss_of(node, "rss_bytes_total") << "\n";
    }
    out << "# EOF\n";
    return out.str();
}

}  // namespace copper
