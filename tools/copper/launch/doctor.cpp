#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/launch/node_checks.hpp"
#include "tools/copper/launch/plan.hpp"
#include "tools/copper/launch/troubles.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

constexpr std::string_view answer_prefix = "{\"copper\":\"doctor\"";

struct DoctorOptions {
    LaunchOptions launch;  // what `copper launch` would get
    bool local = false;
    bool json = false;
    std::string launch_id;
};

// The hosts on which each finding was made, in the order of the checks.
using Findings = std::vector<std::pair<Finding, std::vector<std::string>>>;

void add(Findings& findings, const Finding& finding, const std::string& host) {
    const auto same = std::find_if(findings.begin(), findings.end(),
                                   [&](const auto& each) { return each.first == finding; });
    if (same != findings.end()) {
        same->second.push_back(host);
    } else {
        findings.push_back({finding, {host}});
    }
}

std::vector<Finding> examine_this_node(const Plan& plan) {
    std::vector<Finding> found = {check_fuse(plan.daemon.allow_other),
                                  check_view(),
                                  check_copperd(plan.copperd),
                                  check_limits(),
                                  check_room_for_files(),
                                  check_memory(plan.daemon.cache_bytes),
                                  check_cores(),
                                  check_mount(plan.daemon.mount, plan.daemon.batch_job)};
    const auto others = check_others(plan.daemon.mount, plan.daemon.batch_job);
    found.insert(found.end(), others.begin(), others.end());
    for (const auto& tree : plan.daemon.trees) {
        found.push_back(check_tree(tree));
    }
    return found;
}

// One line, among others of launchers.
std::string answer_of(const std::vector<Finding>& findings) {
    json list = json::array();
    for (const auto& finding : findings) {
        list.push_back(to_json(finding));
    }
    return std::string(answer_prefix) + ",\"host\":" + json(host_name()).dump() +
           ",\"findings\":" + json_line(list) + "}";
}

struct Answer {
    std::string host;
    std::vector<Finding> findings;
};
Answer answer_from(const json& text) {
    Answer answer{.host = text.at("host").get<std::string>(), .findings = {}};
    for (const auto& finding : text.at("findings")) {
        answer.findings.push_back(finding_from(finding));
    }
    return answer;
}

// Returns the hosts that have answered.
std::vector<std::string> take_answers(const std::string& output, Findings& findings) {
    std::vector<std::string> heard;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
        const auto start = std::min(line.find(answer_prefix), line.size());
        if (const auto answer = read_json(std::string_view(line).substr(start), answer_from)) {
            heard.push_back(answer->host);
            for (const auto& finding : answer->findings) {
                add(findings, finding, answer->host);
            }
        }
    }
    return heard;
}

// Asks all other nodes of the job through its launcher.
void examine_others(const Plan& plan, Findings& findings) {
    const auto others = plan.placement.on_this_machine != 0
                            ? std::vector<std::string>()
                            : hosts_without(plan.placement.hosts, {host_name()});
    if (others.empty()) {
        return;
    }
    std::vector<std::string> command = {own_program(), "doctor",  "--local",
                                        "--json",      "--mount", plan.daemon.mount};
    for (const auto& tree : plan.daemon.trees) {
        command.insert(command.end(), {"--tree", tree});
    }
    if (plan.daemon.allow_other) {
        command.emplace_back("--allow-other");
    }
    if (plan.daemon.cache_bytes != 0) {
        command.insert(command.end(), {"--cache-bytes", std::to_string(plan.daemon.cache_bytes)});
    }
    // Those that are late have as long again, alone.
    const auto said = said_by_all(plan.launcher, others, command, host_patience);
    const auto silent = hosts_without(others, take_answers(said, findings));
    // Hydra ends the programs on all nodes if one node lacks the program.
    const auto heard = take_answers(said_by_each(plan.launcher, silent, command), findings);
    for (const auto& host : hosts_without(silent, heard)) {
        add(findings,
            {"launcher", Verdict::problem, "copper cannot be started there by " + plan.launcher.program,
             "install Copper at the same place on all nodes; see whether " + plan.launcher.program +
                 " starts other programs there"},
            host);
    }
}

std::string where(const std::vector<std::string>& hosts, std::size_t nodes) {
    if (nodes == 1) {
        return "";
    }
    if (hosts.size() == nodes) {
        return " (all " + std::to_string(nodes) + " nodes)";
    }
    return " (" + some_of(hosts) + ")";
}

std::string text_of(const Findings& findings, std::size_t nodes) {
    static constexpr std::array marks = {"ok       ", "warning  ", "PROBLEM  "};
    std::string text;
    for (const auto& [finding, hosts] : findings) {
        text += marks.at(static_cast<std::size_t>(finding.verdict)) + finding.check + ": " + finding.text +
                where(hosts, nodes) + "\n";
        if (!finding.advice.empty()) {
            text += "         -> " + finding.advice + "\n";
        }
    }
    return text;
}

json json_of(const Findings& findings) {
    json list = json::array();
    for (const auto& [finding, hosts] : findings) {
        json each = to_json(finding);
        each["hosts"] = hosts;
        list.push_back(std::move(each));
    }
    return {{"schema", 1}, {"findings", std::move(list)}};
}

Result<void> examine(const DoctorOptions& options) {
    auto launch = options.launch;
    if (options.local) {
        launch.launcher = "none";
    }
    const auto plan = make_plan(launch);
    const auto found = plan ? examine_this_node(*plan)
                            : std::vector<Finding>{{"launch", Verdict::problem, plan.error().reason, ""}};
    if (options.local && options.json) {
        std::cout << answer_of(found) << "\n";
        return {};
    }
    Findings findings;
    if (plan) {
        add(findings,
            {"launcher", Verdict::good,
             counted(plan->nodes(), "node") + ", started by " +
                 (plan->launcher.family == Family::alone ? "copper itself" : plan->launcher.program) + " (" +
                 name_of(plan->launcher.family) + ")",
             ""},
            host_name());
    }
    for (const auto& finding : found) {
        add(findings, finding, host_name());
    }
    if (plan) {
        examine_others(*plan, findings);
    }
    const auto problems = std::count_if(findings.begin(), findings.end(), [](const auto& each) {
        return each.first.verdict == Verdict::problem;
    });
    std::cout << (options.json ? json_of(findings).dump(2) + "\n"
                               : text_of(findings, plan ? plan->nodes() : 1));
    return problems == 0 ? Result<void>()
                         : failed(counted(static_cast<std::uint64_t>(problems), "problem") + " (see above)");
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
    auto options = std::make_shared<DoctorOptions>();
    auto* command = app.add_subcommand(
        "doctor", "Look for what would stop a launch, on every node of the job, and say how to fix it");
    const auto as_of_launch = [&app](CLI::Option* option) {
        const auto* there = app.get_subcommand("launch")->get_option(option->get_name());
        option->type_name(there->get_type_name())->description(there->get_description());
    };
    for (const char* name : {"mount", "tree", "cache-bytes"}) {
        as_of_launch(command
                         ->add_option_function<std::vector<std::string>>(
                             std::string("--") + name,
                             [options, name](const std::vector<std::string>& texts) {
                                 options->launch.flags[name] = texts;
                             })
                         ->allow_extra_args(false));
    }
    as_of_launch(command->add_flag_callback("--allow-other",
                                            [options] { options->launch.flags["allow-other"] = {"true"}; }));
    as_of_launch(command->add_option("--nodes-from", options->launch.nodes_from));
    as_of_launch(command->add_option("--launcher", options->launch.launcher));
    auto* local = command->add_flag("--local", options->local, "This node only");
    command->add_option("--launch", options->launch_id)->group("")->needs(local);
    command->add_flag("--json", options->json, "As JSON");
    command->footer(
        "Exit code: 1 if there is a problem.\n\nExamples:\n  copper doctor --tree /lustre/sw/conda\n"
        "  copper doctor --local");
    command->callback([options, &action] {
        action = [options] {
            return options->launch_id.empty() ? examine(*options) : print_daemons(options->launch_id);
        };
    });
}

}  // namespace copper::cli
