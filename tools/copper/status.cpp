#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "tools/copper/common.hpp"

namespace copper::cli {

namespace {

std::string count_alive(const std::vector<nlohmann::json>& nodes) {
    const auto alive = std::count_if(nodes.begin(), nodes.end(), [](const nlohmann::json& node) {
        return text_of(node, "state") != "lost";
    });
    return std::to_string(alive) + " of " + std::to_string(nodes.size());
}

Result<void> print_status(const std::string& flag) {
    const auto mount = mount_named(flag);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto reply = ask_job(*mount, {.verb = verb::status, .argument = ""});
    if (!reply) {
        return tl::make_unexpected(reply.error());
    }
    const auto nodes = per_node(*reply);
    std::cout << "job " << reply->job << ", mount " << *mount << ", " << count_alive(nodes)
              << " nodes alive\n";
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
    std::cout << table(rows);
    return {};
}

}  // namespace

void add_status(CLI::App& app, Action& action) {
    auto mount = std::make_shared<std::string>();
    auto* command =
        app.add_subcommand("status", "Which nodes are alive, readers, mount, uptime, degraded nodes");
    command->add_option("--mount", *mount, "The mount that names the job (default /tmp/$USER/copper)");
    command->callback([mount, &action] { action = [mount] { return print_status(*mount); }; });
}

}  // namespace copper::cli
