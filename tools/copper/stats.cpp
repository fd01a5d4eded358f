#include <CLI/CLI.hpp>
#include <iostream>

#include "daemon/control/metrics.hpp"
#include "tools/copper/common.hpp"
#include "tools/copper/mirror.hpp"
#include "tools/copper/report.hpp"

namespace copper::cli {

namespace {

struct StatsOptions {
    std::string mount;
    bool all = false;
    bool json = false;
    bool open_metrics = false;
    std::optional<std::uint32_t> node;
    std::uint32_t top = 0;
};

void print(const StatsOptions& options, const JobStatistics& job) {
    if (options.open_metrics) {
        std::vector<nlohmann::json> alive;
        for (const auto& node : job.nodes) {
            if (!is_lost(node)) {
                alive.push_back(node);
            }
        }
        std::cout << to_open_metrics(alive);
    } else if (options.json) {
        std::cout << statistics_json(job).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                  << "\n";
    } else {
        std::cout << (options.all ? statistics_text(job) : statistics_summary(job));
    }
}

Result<void> print_stats(const StatsOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto reply = ask_job(
        *mount, {.verb = verb::stats, .argument = options.top > 0 ? std::to_string(options.top) : ""});
    if (!reply) {
        return tl::make_unexpected(reply.error());
    }
    JobStatistics job{.job = reply->job,
                      .mount = *mount,
                      .nodes = per_node(*reply, launched_hosts(*mount)),
                      .top_paths = options.top};
    if (options.node && *options.node >= job.nodes.size()) {
        return misused("--node " + std::to_string(*options.node) + ": the job has the nodes 0 to " +
                       std::to_string(job.nodes.size() - 1));
    }
    if (options.node) {
        job.nodes = {job.nodes[*options.node]};
    }
    print(options, job);
    return {};
}

}  // namespace

void add_stats(CLI::App& app, Action& action) {
    auto options = std::make_shared<StatsOptions>();
    auto* command = app.add_subcommand("stats", "Show live statistics of the whole job");
    add_mount_option(*command, options->mount);
    auto* all = command->add_flag("--all", options->all, "All counters instead of a summary");
    auto* json = command->add_flag("--json", options->json, "As JSON, with stable keys")->excludes(all);
    auto* open_metrics =
        command->add_flag("--openmetrics", options->open_metrics, "As OpenMetrics text, per node");
    open_metrics->excludes(json)->excludes(all);
    command->add_option("--top", options->top, "Also the N most requested paths (up to 1000)")
        ->type_name("N")
        ->check(CLI::Range(1, 1000))
        ->excludes(open_metrics);
    command->add_option("--node", options->node, "Of this node only")->type_name("RANK");
    command->footer(
        "Examples:\n"
        "  copper stats                            # six lines: what Copper saved\n"
        "  copper stats --top 20\n"
        "  copper stats --json > stats.json");
    command->callback([options, &action] { action = [options] { return print_stats(*options); }; });
}

}  // namespace copper::cli
