#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "daemon/control/sum.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/look/statistics.hpp"
#include "tools/copper/nodes/ask_job.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

constexpr std::size_t problems_shown_max = 20;

struct StatusOptions {
    std::string mount;
    bool nodes = false;
    bool json = false;
};

bool serves(const json& node) {
    return text_of(node, "state") == "serving";
}

// What a user sees of the state of a node that does not serve as it should.
std::string problem_of(const json& node) {
    const auto state = text_of(node, "state");
    const auto name = text_of(node, "host") == "-" ? "rank " + text_of(node, "rank") : text_of(node, "host");
    const auto why = text_of(node, "why");
    return name + (state == "degraded" ? "" : " is " + state) + (why == "-" ? "" : ": " + why);
}

// `found`: how many there are; `nodes` may be fewer.
std::string problems(const std::vector<json>& nodes, std::size_t found) {
    std::string text;
    const auto shown = std::min(nodes.size(), problems_shown_max);
    for (std::size_t i = 0; i < shown; ++i) {
        text += "  " + problem_of(nodes[i]) + "\n";
    }
    return found <= shown ? text
                          : text + "  and " + std::to_string(found - shown) + " more (--nodes lists them)\n";
}

// Filesystems that do not answer: readers wait for them, and programs for the readers.
std::string silence(const json& sum) {
    std::string text;
    const auto waiting = sum.value("waiting", std::uint64_t{0});
    const json silent = sum.value("silent", json::object());
    for (const auto& [filesystem, found] : silent.items()) {
        text += "  " + filesystem + " has not answered " + counted(found.value("nodes", 1U), "node") +
                " for " + std::to_string(found.value("seconds", 0U)) + " s\n";
    }
    return text.empty() ? text : text + "  " + counted(waiting, "request") + " of programs wait\n";
}

// Where `copper run` has no view.
std::string views(const json& sum) {
    std::string text;
    const json told = sum.value("no_view", json::object());
    for (const auto& [why, found] : told.items()) {
        text += "  'copper run' changes paths on " + counted(found.value("nodes", 1U), "node") + ": " + why +
                "\n";
    }
    return text;
}

// Of the filesystems that do not answer at once.
std::string paces(const json& sum) {
    std::ostringstream text;
    text.precision(3);
    const json told = sum.value("paces", json::object());
    for (const auto& [filesystem, pace] : told.items()) {
        text << "  " << filesystem << " takes " << pace.value("operation_us", 0.0) / 1e3
             << " ms for an operation"
             << (pace.value("is_serial", false) ? ", and looks up one name at a time in a directory" : "")
             << "\n";
    }
    return text.str();
}

// The nodes that had no daemon from the beginning (--allow-missing). Known where the job was launched.
std::vector<json> left_out(const std::string& mount) {
    std::vector<json> nodes;
    if (const auto launch = read_launch(mount)) {
        for (const auto& node : launch->left_out) {
            nodes.push_back({{"host", node.host}, {"state", "missing"}, {"why", node.reason}});
        }
    }
    return nodes;
}

std::string trees_of(const std::vector<json>& nodes) {
    for (const auto& node : nodes) {
        const auto trees = node.value("trees", std::vector<std::string>());
        if (!trees.empty()) {
            return joined(trees, ", ");  // all nodes have the same
        }
    }
    return "";
}

std::string summary(std::size_t serving, std::size_t nodes) {
    return std::to_string(serving) + " of " + std::to_string(nodes) + " nodes serve";
}

Result<void> verdict(std::size_t serving, std::size_t nodes) {
    return serving == nodes ? Result<void>() : failed("only " + summary(serving, nodes));
}

std::string node_table(const std::vector<json>& nodes) {
    std::vector<std::vector<std::string>> rows = {
        {"RANK", "HOST", "STATE", "READER", "READS", "EPOCH", "UPTIME/s", "PID", "MOUNT", "WHY"}};
    for (const auto& node : nodes) {
        std::vector<std::string> row;
        for (const char* key :
             {"rank", "host", "state", "reader", "reads", "epoch", "uptime_seconds", "pid", "mount", "why"}) {
            row.push_back(text_of(node, key));
        }
        rows.push_back(std::move(row));
    }
    return table(rows);
}

// From any number of nodes, a few kilobytes come.
Result<void> print_summary(const std::string& mount) {
    const auto job = ask_sum(mount, instances_of_job(mount), 0, "status");
    if (!job) {
        return tl::make_unexpected(job.error());
    }
    const auto serving = job->sum.at("serving").get<std::size_t>();
    const auto missing = left_out(mount);
    const auto nodes = job->nodes + missing.size();
    auto troubled = job->lost;
    for (const auto& node : job->sum.at("conspicuous")) {
        if (!serves(node)) {
            troubled.push_back(node);
        }
    }
    std::sort(troubled.begin(), troubled.end(),
              [](const json& a, const json& b) { return a.value("rank", 0U) < b.value("rank", 0U); });
    troubled.insert(troubled.end(), missing.begin(), missing.end());
    std::cout << summary(serving, nodes) << "; mirror of " << trees_of({job->sum}) << " at " << mount << "\n"
              << problems(troubled, nodes - serving) << views(job->sum) << paces(job->sum)
              << silence(job->sum);
    return verdict(serving, nodes);
}

Result<void> print_nodes(const std::string& mount, bool as_json) {
    const auto reply =
        ask_job(mount, instances_of_job(mount), {.verb = verb::status, .argument = ""}, "status");
    if (!reply) {
        return tl::make_unexpected(reply.error());
    }
    auto nodes = per_node(*reply, launched_hosts(mount));
    const auto missing = left_out(mount);
    nodes.insert(nodes.end(), missing.begin(), missing.end());
    const auto serving = static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), serves));
    if (as_json) {
        const json report{{"schema", 1},           {"job", reply->job},  {"mount", mount},
                          {"nodes", nodes.size()}, {"serving", serving}, {"per_node", nodes}};
        std::cout << report.dump(2, ' ', false, json::error_handler_t::replace) << "\n";
    } else {
        const json sum = sum_of(nodes, 0);
        std::cout << summary(serving, nodes.size()) << "; mirror of " << trees_of(nodes) << " at " << mount
                  << "\n"
                  << node_table(nodes) << views(sum) << paces(sum) << silence(sum);
    }
    return verdict(serving, nodes.size());
}

Result<void> print_status(const StatusOptions& options) {
    return mount_named(options.mount).and_then([&](const std::string& mount) {
        warn_of_other_job(mount);
        return options.nodes || options.json ? print_nodes(mount, options.json) : print_summary(mount);
    });
}

}  // namespace

void add_status(CLI::App& app, Action& action) {
    auto options = std::make_shared<StatusOptions>();
    auto* command =
        app.add_subcommand("status", "Tell how many nodes serve, and which do not; exit code 0 if all serve");
    add_mount_option(*command, options->mount);
    auto* nodes = command->add_flag("--nodes", options->nodes, "A table of all nodes");
    command->add_flag("--json", options->json, "As JSON, with all nodes")->excludes(nodes);
    command->footer("Examples:\n  copper status\n  copper status --nodes");
    command->callback([options, &action] { action = [options] { return print_status(*options); }; });
}

}  // namespace copper::cli
