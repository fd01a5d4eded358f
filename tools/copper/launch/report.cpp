#include "tools/copper/launch/report.hpp"

#include <iostream>
#include <sstream>

#include "daemon/control/instance.hpp"
#include "daemon/control/option_defaults.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

constexpr const char* never_answered = "it never answered ('copper doctor' may find the reason)";

std::string counted(const LaunchOutcome& outcome, const Plan& plan) {
    const auto ready = outcome.readiness ? outcome.readiness->ready : 0;
    return std::to_string(ready) + " of " + std::to_string(plan.nodes()) +
           " nodes were ready; everything was stopped again";
}

// What went wrong, by node.
std::vector<std::string> reasons(const LaunchOutcome& outcome, const std::vector<Trouble>& troubles) {
    std::vector<std::string> lines;
    for (const auto& trouble : troubles) {
        lines.push_back(trouble.host + ": " + trouble.reason);
    }
    if (outcome.readiness) {
        for (const auto& node : outcome.readiness->failed) {
            lines.push_back(node.host + ": " + node.reason);
        }
        for (const auto& host : outcome.readiness->missing) {
            lines.push_back(host + ": " + never_answered);
        }
    }
    return lines;
}

// For a failure that is no node's fault.
std::string general_reason(const LaunchOutcome& outcome, const Plan& plan) {
    if (outcome.end == LaunchEnd::interrupted) {
        return "interrupted while launching";
    }
    if (outcome.readiness && outcome.readiness->nodes != plan.nodes()) {
        return "the daemons do not find each other: one sees " + std::to_string(outcome.readiness->nodes) +
               " of " + std::to_string(plan.nodes()) + " nodes (copperd is built with " +
               name_of(built_with()) + "; does " + plan.launcher.program +
               (plan.launcher.mpi_plugin.empty() ? "" : " with --mpi=" + plan.launcher.mpi_plugin) +
               " start programs of this MPI?)";
    }
    if (outcome.end == LaunchEnd::ended) {
        // What a daemon said that could not report.
        constexpr std::string_view daemon = "copperd: ";
        for (const auto& line : outcome.tail) {
            if (line.starts_with(daemon)) {
                return line.substr(daemon.size());
            }
        }
        return (plan.launcher.family == Family::alone ? "copperd" : plan.launcher.program) +
               " ended before all nodes were ready: " + describe_status(outcome.status) +
               (outcome.tail.empty() ? "; it said nothing, but 'copper doctor' may find the reason"
                                     : "; its last words follow");
    }
    return "no report of all nodes in time: 'copper doctor' may find the reason; --ready-timeout gives more "
           "time";
}

// If the nodes are elsewhere, this command knows only the rule of the default, not its value.
std::string cache_size(const Plan& plan) {
    const auto given = plan.daemon.cache_bytes;
    if (given == 0 && !plan.on_this_machine_only()) {
        return "a quarter of memory, at most " + in_units(cache_bytes_default_max) + ",";
    }
    return in_units(given != 0 ? given : default_cache_bytes(plan.nodes())) + " of memory";
}

}  // namespace

std::string explanation(const LaunchOutcome& outcome, const Plan& plan,
                        const std::vector<Trouble>& troubles) {
    const auto lines = reasons(outcome, troubles);
    const bool blamed = !lines.empty() && outcome.end != LaunchEnd::interrupted;
    std::string text = blamed ? lines.front() : general_reason(outcome, plan);
    if (blamed && lines.size() > 1) {
        text += " (and " + std::to_string(lines.size() - 1) + " more)";
    }
    text += "\n  " + counted(outcome, plan);
    for (std::size_t i = blamed ? 1 : 0; i < lines.size(); ++i) {
        text += "\n  " + lines[i];
    }
    for (const auto& line : outcome.tail) {
        text += "\n  | " + line;
    }
    return text;
}

std::vector<Trouble> missing_nodes(const LaunchOutcome& outcome, const Plan& plan) {
    auto missing = plan.left_out;
    for (const auto& node : outcome.readiness->failed) {
        missing.push_back({.host = node.host, .reason = node.reason, .answers = true});
    }
    for (const auto& host : outcome.readiness->missing) {
        missing.push_back({.host = host, .reason = never_answered, .answers = true});
    }
    return missing;
}

void print_success(const Plan& plan, std::size_t missing) {
    const auto all = plan.nodes() + plan.left_out.size();
    const auto of_all = missing == 0 ? std::string() : std::to_string(all - missing) + " of ";
    std::cout << "mount  " << plan.mounts.front()
              << (plan.mounts.size() > 1 ? " to " + plan.mounts.back() : std::string()) << "\n"
              << "nodes  " << of_all << all << "\n";
    if (plan.daemon.has_default_trees) {
        std::cout << "trees  " << joined(plan.daemon.trees, ", ") << "\n";
    }
    std::cout << "cache  up to " << cache_size(plan) << " a node\n";
    std::cout << "use    eval \"$(copper env" << mount_flag(plan.daemon.mount) << ")\"\n";
}

}  // namespace copper::cli
