#include <CLI/CLI.hpp>
#include <iostream>

#include "daemon/control/metrics.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/look/statistics.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

struct StatsOptions {
    std::string mount;
    bool all = false;
    bool json = false;
    bool open_metrics = false;
    bool nodes = false;
    std::optional<std::uint32_t> node;
    std::uint32_t top = 0;
};

void print(const StatsOptions& options, const JobStatistics& job) {
    if (options.open_metrics) {
        json sum = job.sum;
        sum["job"] = job.job;
        std::cout << to_open_metrics({sum});
    } else {
        std::cout << (options.all ? statistics_text(job) : statistics_summary(job));
    }
}

// For users who ask for nodes: the answer of each node travels to this one.
Result<void> print_nodes(const StatsOptions& options, const std::string& mount) {
    auto each = ask_each_node(mount, instances_of_job(mount), options.top);
    if (!each) {
        return tl::make_unexpected(each.error());
    }
    if (options.node && *options.node >= each->nodes.size()) {
        return misused("--node " + std::to_string(*options.node) + ": the job has the nodes 0 to " +
                       std::to_string(each->nodes.size() - 1));
    }
    if (options.node) {
        each->nodes = {each->nodes[*options.node]};
    }
    const auto job = statistics_of(*each, mount, options.top);
    if (options.json) {
        std::cout << statistics_json(*each, job).dump(2, ' ', false, json::error_handler_t::replace) << "\n";
    } else if (options.open_metrics) {
        std::erase_if(each->nodes, is_lost);
        std::cout << to_open_metrics(each->nodes);
    } else {
        print(options, job);
    }
    return {};
}

Result<void> print_stats(const StatsOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    warn_of_other_job(*mount);
    if (options.json || options.nodes || options.node) {
        return print_nodes(options, *mount);
    }
    return ask_sum(*mount, instances_of_job(*mount), options.top, "stats").map([&](const JobStatistics& job) {
        print(options, job);
    });
}

}  // namespace

void add_stats(CLI::App& app, Action& action) {
    auto options = std::make_shared<StatsOptions>();
    auto* command = app.add_subcommand("stats", "Show live statistics of the whole job");
    add_mount_option(*command, options->mount);
    auto* all = command->add_flag("--all", options->all, "All counters instead of a summary");
    auto* json = command->add_flag("--json", options->json, "As JSON, with stable keys")->excludes(all);
    auto* open_metrics = command->add_flag("--openmetrics", options->open_metrics, "As OpenMetrics text");
    open_metrics->excludes(json)->excludes(all);
    command->add_option("--top", options->top, "Also the N most requested paths (up to 1000)")
        ->type_name("N")
        ->check(CLI::Range(1, 1000))
        ->excludes(open_metrics);
    command->add_flag("--nodes", options->nodes, "With --openmetrics: of each node instead of the whole job")
        ->needs(open_metrics);
    command->add_option("--node", options->node, "Of this node only")->type_name("RANK");
    command->footer(
        "Examples:\n"
        "  copper stats                            # what Copper saved, in a few lines\n"
        "  copper stats --top 20\n"
        "  copper stats --json > stats.json\n"
        "  copper stats --openmetrics");
    command->callback([options, &action] { action = [options] { return print_stats(*options); }; });
}

}  // namespace copper::cli
