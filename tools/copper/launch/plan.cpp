#include "tools/copper/launch/plan.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error_text.hpp"
#include "base/host_name.hpp"
#include "base/job_key.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "daemon/control/job_key_variable.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/private_directory.hpp"
#include "daemon/control/profile_files.hpp"
#include "tools/copper/launch/lease.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/nodes/launcher_choice.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/nodes/nodes.hpp"
#include "tools/copper/nodes/remote_shell.hpp"

namespace copper::cli {

namespace {

constexpr std::uint32_t local_nodes_max = 256;
constexpr std::size_t launch_id_digits = 16;
// The kernel limits a command and its environment (128 KiB per argument, 2 MiB altogether).
constexpr std::size_t hosts_in_records_max = 64;

// The flag, the environment or the file, in this order; otherwise `fallback`.
std::string setting(const std::string& flag, const Sources& sources, const char* name,
                    const std::string& fallback) {
    if (!flag.empty()) {
        return flag;
    }
    const auto source = sources.by_name.find(name);
    return source != sources.by_name.end() && !source->second.texts.empty() ? source->second.texts.back()
                                                                            : fallback;
}

// `source`: the option, the variable or the key of a file.
Result<std::uint32_t> parse_local(const std::string& source, const std::string& text) {
    std::uint32_t nodes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nodes);
    if (error != std::errc() || end != text.data() + text.size() || nodes == 0 || nodes > local_nodes_max) {
        return misused(source + " " + text + ": must be a number from 1 to " +
                       std::to_string(local_nodes_max));
    }
    return nodes;
}

std::vector<std::string> kept_variables(const LaunchOptions& options, const Sources& sources) {
    if (!options.keep_env.empty()) {
        return options.keep_env;
    }
    std::vector<std::string> names;
    if (const auto found = sources.by_name.find("keep-env"); found != sources.by_name.end()) {
        for (const auto& text : found->second.texts) {  // a variable holds several, separated by colons
            std::istringstream parts(text);
            for (std::string name; std::getline(parts, name, ':');) {
                names.push_back(name);
            }
        }
    }
    return names;
}

Result<void> plan_nodes(const LaunchOptions& options, const Sources& sources, Plan& plan) {
    const auto local = setting(options.local, sources, "local", "");
    if (!options.local.empty() && !options.nodes_from.empty()) {
        return misused("--local: not together with --nodes-from");
    }
    LauncherChoice choice{.name = setting(options.launcher, sources, "launcher", "auto"),
                          .arguments = setting("", sources, "launcher-args", ""),
                          .copperd = plan.copperd,
                          .one_machine = !local.empty()};
    if (choice.one_machine) {
        const auto nodes =
            parse_local(options.local.empty() ? sources.by_name.at("local").source : "--local", local);
        if (!nodes) {
            return tl::make_unexpected(nodes.error());
        }
        plan.placement.on_this_machine = *nodes;
        plan.daemon.local = true;
        choice.this_node_alone = *nodes == 1;
    } else if (choice.name == "none") {
        plan.placement.hosts = {host_name()};
    } else {
        auto hosts = find_nodes(setting(options.nodes_from, sources, "nodes-from", "auto"));
        if (!hosts) {
            return tl::make_unexpected(hosts.error());
        }
        plan.placement.hosts = hosts_without(*hosts, hosts_of(plan.left_out));
        // (The launcher also reaches the nodes that are left out.)
        choice.this_node_alone = hosts_without(*hosts, {host_name()}).empty();
    }
    if (choice.name == "none" && plan.nodes() > 1) {
        return misused("--launcher none: starts one node, not " + std::to_string(plan.nodes()));
    }
    auto launcher = find_launcher(choice);
    if (!launcher) {
        return tl::make_unexpected(launcher.error());
    }
    plan.launcher = std::move(*launcher);
    plan.launcher.keep_env = kept_variables(options, sources);
    return {};
}

void plan_mounts(Plan& plan) {
    const auto& mount = plan.daemon.mount;
    for (std::uint32_t node = 0; node < plan.placement.on_this_machine; ++node) {
        plan.mounts.push_back(local_mount(mount, node));
    }
    if (plan.placement.on_this_machine == 0) {
        plan.mounts.push_back(mount);
    }
}

// How `copper stop` on another node of the job reaches this node.
void plan_way_back(Plan& plan) {
    if (plan.launcher.family != Family::alone && plan.placement.on_this_machine == 0 &&
        plan.nodes() <= hosts_in_records_max) {
        auto launcher = plan.launcher;
        launcher.other_job = plan.daemon.batch_job;  // a shell on that node may be outside the job
        auto hosts = plan.placement.hosts;
        for (const auto& node : plan.left_out) {
            if (node.answers) {
                hosts.push_back(node.host);
            }
        }
        plan.daemon.run_everywhere = reach_hosts(launcher, hosts, {});
    }
}

Result<DaemonOptions> daemon_options(const LaunchOptions& options, Plan& plan) {
    const auto config = options.config.empty() ? std::nullopt : std::optional(options.config);
    auto daemon = resolve_options(options.flags, config);
    if (!daemon) {
        return misused(daemon.error());
    }
    const auto span = plan.on_this_machine_only() ? JobSpan::one_machine : JobSpan::several_machines;
    if (const auto chosen = choose_trees(*daemon, span); !chosen) {
        return misused(chosen.error());
    }
    return std::move(*daemon);
}

// The file that `auto` means. Only here is it known which script launches.
std::string profile_of(const DaemonOptions& daemon) {
    if (daemon.profile != profile_auto) {
        return daemon.profile;
    }
    const auto directory = profiles_directory();
    return directory.empty() ? profile_off : directory + "/" + profile_name(program_of_job(), daemon.trees);
}

// Nothing if the profile can be written. Its directory is made when it is.
std::optional<std::string> why_not_recorded(const std::string& profile) {
    if (profile == profile_auto || profile == profile_off) {
        return std::nullopt;
    }
    std::string directory(parent_path(profile));
    while (::access((directory + "/.").c_str(), W_OK | X_OK) != 0) {
        if (errno != ENOENT) {
            return directory + ": " + error_text();
        }
        directory = parent_path(directory);
    }
    return std::nullopt;
}

// For scripts with flags that have gone out of --help.
std::vector<std::string> better_words(const FlagTexts& flags) {
    using enum OptionRow::Audience;
    std::vector<std::string> found;
    for (const auto& [name, texts] : flags) {
        const OptionRow& row = *find_row(name);
        if (row.audience == former) {
            found.push_back("--" + name + ": " + row.help);
        } else if (row.audience == seldom) {
            found.push_back("--" + name + ": use the variable " + variable_of(name) + ", or '" + name +
                            "' in the file of --config");
        }
    }
    return found;
}

// Where the user named no mount, and the default one is taken: in the private directory.
void choose_mount(const LaunchOptions& options, const Sources& sources, const Places& places, Plan& plan) {
    const auto given = options.flags.find("mount");
    plan.uses_default_mount =
        (given == options.flags.end() || given->second.empty()) && setting("", sources, "mount", "").empty();
    if (places.mount_is_taken && plan.uses_default_mount) {
        plan.daemon.mount = mount_within(plan.daemon.private_directory);
    }
}

// Names of those of this process that all daemons get.
std::vector<std::string> variables_passed_on(const Launcher& launcher) {
    std::set<std::string> kept(launcher.keep_env.begin(), launcher.keep_env.end());
    kept.erase("LD_LIBRARY_PATH");  // launch_command() passes it on anyway
    kept.erase(job_key_variable);
    std::vector<std::string> variables = {job_key_variable};
    std::ranges::copy_if(kept, std::back_inserter(variables),
                         [](const std::string& name) { return std::getenv(name.c_str()) != nullptr; });
    return variables;
}

}  // namespace

std::string why_default_mount_is_taken() {
    return why_others_can_exchange(std::string(parent_path(default_mount())));
}

// Both are installed side by side, or both are in the build tree.
Result<std::string> find_daemon() {
    const std::filesystem::path own = own_program();
    for (const auto& place : {own.parent_path() / "copperd", own.parent_path() / "../../daemon/copperd",
                              own.parent_path() / "../daemon/copperd"}) {
        if (::access(place.c_str(), X_OK) == 0) {
            return place.lexically_normal().string();
        }
    }
    if (auto found = find_program("copperd")) {
        return *found;
    }
    return lacking("copperd not found beside " + own.string() +
                   ", nor in PATH (install Copper on all nodes)");
}

Result<Plan> make_plan(const LaunchOptions& options, const Places& places,
                       const std::vector<Trouble>& left_out) {
    const auto config = options.config.empty() ? std::nullopt : std::optional(options.config);
    const auto sources = read_sources(config);
    if (!sources) {
        return misused(sources.error());
    }
    auto copperd = find_daemon();
    if (!copperd) {
        return tl::make_unexpected(copperd.error());
    }
    Plan plan;
    plan.left_out = left_out;
    plan.copperd = std::move(*copperd);
    if (const auto nodes = plan_nodes(options, *sources, plan); !nodes) {
        return tl::make_unexpected(nodes.error());
    }
    const bool local = plan.daemon.local;
    auto daemon = daemon_options(options, plan);
    if (!daemon) {
        return tl::make_unexpected(daemon.error());
    }
    plan.daemon = std::move(*daemon);
    std::ranges::move(better_words(options.flags), std::back_inserter(plan.daemon.warnings));
    plan.daemon.local = local;
    plan.daemon.allow_missing -= static_cast<std::uint32_t>(left_out.size());
    if (!places.private_directory.empty()) {
        plan.daemon.private_directory = places.private_directory;
    }
    choose_mount(options, *sources, places, plan);
    plan.daemon.launch = JobKey::random().text().substr(0, launch_id_digits);
    if (const auto why = why_not_recorded(plan.daemon.profile)) {
        plan.daemon.warnings.push_back("--profile: " + *why + "; this node cannot record what the job uses");
    }
    plan.daemon.profile = profile_of(plan.daemon);
    // Otherwise each daemon checks its own node.
    if (plan.on_this_machine_only()) {
        if (const auto checked = check_cache_bytes(plan.daemon, plan.nodes()); !checked) {
            return misused(checked.error());
        }
    }
    plan_mounts(plan);
    const auto files = launch_files(plan.daemon.mount);
    if (plan.placement.on_this_machine == 0 && plan.nodes() > hosts_on_command_line_max) {
        plan.placement.host_file = files.hosts;
    }
    plan.log = files.log;
    plan_way_back(plan);
    plan.daemon.require_key = true;
    plan.daemon.nodes = static_cast<std::uint32_t>(plan.nodes());
    plan.daemon.lease = lease_of(plan.launcher, plan.daemon.batch_job);
    auto command = to_flags(plan.daemon);
    command.insert(command.begin(), plan.copperd);
    auto launcher = plan.launcher;
    if (!plan.on_this_machine_only()) {
        launcher.extra = with_remote_shell(launcher);
    }
    plan.command = launch_command(launcher, plan.placement, command, variables_passed_on(launcher));
    return plan;
}

}  // namespace copper::cli
