#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <utility>

#include "base/host_name.hpp"
#include "base/own_files.hpp"
#include "daemon/control/job_key_variable.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/option_flags.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/cleanup.hpp"
#include "tools/copper/everywhere.hpp"
#include "tools/copper/launch_record.hpp"
#include "tools/copper/launch_watch.hpp"
#include "tools/copper/node_list.hpp"
#include "tools/copper/nodes.hpp"
#include "tools/copper/words.hpp"

namespace copper::cli {

namespace {

using std::chrono::milliseconds;

// Rank 0 gives up after --ready-timeout and says so; this is for its words to arrive.
constexpr milliseconds report_margin{10000};
constexpr milliseconds launcher_patience{10000};
constexpr std::uint32_t local_nodes_max = 256;
// A command, with its environment, is held by the kernel's limit on one (128 KiB an argument, 2 MiB
// altogether).
constexpr std::size_t hosts_in_records_max = 64;

struct LaunchOptions {
    FlagTexts flags;
    std::string config;
    std::string nodes_from, launcher, local;
    bool dry_run = false;
};

// Everything that is known before the first process is started.
struct Plan {
    DaemonOptions daemon;
    Launcher launcher;
    Placement placement;
    std::vector<std::string> mounts;  // on this machine
    std::vector<std::string> command;
    std::string log;

    std::size_t nodes() const {
        return placement.on_this_machine != 0 ? placement.on_this_machine : placement.hosts.size();
    }
    bool on_this_machine_only() const {
        return placement.on_this_machine != 0 || launcher.family == Family::alone;
    }
};

// Flag, then environment, then file; `fallback` if none has it.
std::string setting(const std::string& flag, const Sources& sources, const char* name,
                    const std::string& fallback) {
    if (!flag.empty()) {
        return flag;
    }
    const auto source = sources.by_name.find(name);
    return source != sources.by_name.end() && !source->second.texts.empty() ? source->second.texts.back()
                                                                            : fallback;
}

Result<std::uint32_t> parse_local(const std::string& text) {
    std::uint32_t nodes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nodes);
    if (error != std::errc() || end != text.data() + text.size() || nodes == 0 || nodes > local_nodes_max) {
        return misused("--local " + text + ": must be a number from 1 to " + std::to_string(local_nodes_max));
    }
    return nodes;
}

// Installed side by side, or both in the build tree.
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

Result<void> plan_nodes(const LaunchOptions& options, const Sources& sources, Plan& plan) {
    const auto local = setting(options.local, sources, "local", "");
    LauncherChoice choice{.name = setting(options.launcher, sources, "launcher", "auto"),
                          .arguments = setting("", sources, "launcher-args", ""),
                          .one_machine = !local.empty()};
    if (choice.one_machine) {
        const auto nodes = parse_local(local);
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
        plan.placement.hosts = std::move(*hosts);
        choice.this_node_alone = hosts_without(plan.placement.hosts, {host_name()}).empty();
    }
    if (choice.name == "none" && plan.nodes() > 1) {
        return misused("--launcher none: starts one node, not " + std::to_string(plan.nodes()));
    }
    auto launcher = find_launcher(choice);
    if (!launcher) {
        return tl::make_unexpected(launcher.error());
    }
    plan.launcher = std::move(*launcher);
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
    // DIR.0 is Copper's own name, and so is the default mount; another one is the user's to make.
    plan.daemon.create_mount =
        plan.daemon.create_mount || plan.daemon.local || mount == canonical_mount(default_mount());
}

// What `copper stop` on any other node of the job reaches this one with.
void plan_way_back(Plan& plan) {
    if (plan.launcher.family != Family::alone && plan.placement.on_this_machine == 0 &&
        plan.nodes() <= hosts_in_records_max) {
        plan.daemon.run_everywhere = launch_command(plan.launcher, plan.placement, {});
    }
}

Result<DaemonOptions> daemon_options(const LaunchOptions& options, bool one_machine) {
    const auto config = options.config.empty() ? std::nullopt : std::optional(options.config);
    auto daemon = resolve_options(options.flags, config);
    if (!daemon) {
        return misused(daemon.error());
    }
    const auto span = one_machine ? JobSpan::one_machine : JobSpan::several_machines;
    if (const auto chosen = choose_trees(*daemon, span); !chosen) {
        return misused(chosen.error());
    }
    return std::move(*daemon);
}

Result<Plan> make_plan(const LaunchOptions& options) {
    const auto config = options.config.empty() ? std::nullopt : std::optional(options.config);
    const auto sources = read_sources(config);
    if (!sources) {
        return misused(sources.error());
    }
    Plan plan;
    if (const auto nodes = plan_nodes(options, *sources, plan); !nodes) {
        return tl::make_unexpected(nodes.error());
    }
    const bool local = plan.daemon.local;
    auto daemon = daemon_options(options, plan.on_this_machine_only());
    if (!daemon) {
        return tl::make_unexpected(daemon.error());
    }
    plan.daemon = std::move(*daemon);
    plan.daemon.local = local;
    // Elsewhere each daemon checks its own node.
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
    plan.log = plan.daemon.log_dir.empty() ? files.log : plan.daemon.log_dir + "/launch.log";
    plan_way_back(plan);
    const auto copperd = find_daemon();
    if (!copperd) {
        return tl::make_unexpected(copperd.error());
    }
    plan.daemon.require_key = true;
    auto command = to_flags(plan.daemon);
    command.insert(command.begin(), *copperd);
    plan.command = launch_command(plan.launcher, plan.placement, command, {job_key_variable});
    return plan;
}

// What would make the daemons fail, said before any is started.
Result<void> check_this_node(const Plan& plan) {
    if (::access("/dev/fuse", F_OK) != 0) {
        return lacking(
            "/dev/fuse does not exist: load the kernel's module (modprobe fuse), or give the container the "
            "device (--device /dev/fuse)");
    }
    const auto launch = read_launch(plan.daemon.mount);
    if (launch && is_running(launch->process.pid, launch->process.started)) {
        return failed(plan.daemon.mount + ": already launched, by process " +
                      std::to_string(launch->process.pid) + " (end it with 'copper stop')");
    }
    for (const auto& mount : plan.mounts) {
        if (const auto live = find_live_instance(::getuid(), mount)) {
            return failed(mount + ": already served by process " + std::to_string(live->pid) +
                          " (end it with 'copper stop')");
        }
        const auto mounts = copper_mounts();
        if (std::any_of(mounts.begin(), mounts.end(),
                        [&](const CopperMount& m) { return m.point == mount; })) {
            return failed(mount +
                          ": a Copper mount whose daemon is gone is there (clear it with 'copper stop')");
        }
    }
    return {};
}

Result<void> write_files(const Plan& plan) {
    if (!plan.daemon.log_dir.empty()) {
        std::error_code error;
        std::filesystem::create_directories(plan.daemon.log_dir, error);
        if (error) {
            return failed("--log-dir " + plan.daemon.log_dir + ": " + error.message());
        }
    }
    if (!plan.placement.host_file.empty()) {
        std::string text;
        for (const auto& host : plan.placement.hosts) {
            text += host + "\n";
        }
        return write_file(plan.placement.host_file, text);
    }
    return {};
}

LaunchRecord record_of(const Plan& plan, pid_t launcher) {
    return {.mount = plan.daemon.mount,
            .job = plan.daemon.job,
            .batch_job = batch_job_id(),
            .process = {launcher, start_time_of(launcher)},
            .launcher = plan.launcher,
            .hosts = plan.placement.on_this_machine != 0 ? std::vector<std::string>() : plan.placement.hosts,
            .on_this_machine = plan.placement.on_this_machine};
}

std::string counted(const LaunchOutcome& outcome, const Plan& plan) {
    const auto ready = outcome.readiness ? outcome.readiness->ready : 0;
    return std::to_string(ready) + " of " + std::to_string(plan.nodes()) +
           " nodes were ready; everything was stopped again";
}

// What went wrong, node by node.
std::vector<std::string> reasons(const LaunchOutcome& outcome, const std::vector<std::string>& unreachable) {
    std::vector<std::string> lines;
    for (const auto& host : unreachable) {
        lines.push_back(host + ": cannot be reached");
    }
    if (outcome.readiness) {
        for (const auto& node : outcome.readiness->failed) {
            lines.push_back(node.host + " (rank " + std::to_string(node.rank) + "): " + node.reason);
        }
        for (const auto rank : outcome.readiness->missing) {
            lines.push_back("rank " + std::to_string(rank) + ": nothing was heard of it");
        }
    }
    return lines;
}

// Where no node is to blame.
std::string general_reason(const LaunchOutcome& outcome, const Plan& plan) {
    if (outcome.end == LaunchEnd::interrupted) {
        return "interrupted while launching";
    }
    if (outcome.readiness && outcome.readiness->nodes != plan.nodes()) {
        return "the daemons do not find each other: one sees " + std::to_string(outcome.readiness->nodes) +
               " of " + std::to_string(plan.nodes()) +
               " nodes (is copperd built with the MPI that the launcher belongs to?)";
    }
    if (outcome.end == LaunchEnd::ended) {
        return (plan.launcher.family == Family::alone ? "copperd" : plan.launcher.program) +
               " ended before all nodes were ready: " + describe_status(outcome.status);
    }
    return "no report of all nodes in time";
}

// The first line says it all; the others, and what was written by daemons and launcher, follow.
std::string explanation(const LaunchOutcome& outcome, const Plan& plan,
                        const std::vector<std::string>& unreachable) {
    const auto lines = reasons(outcome, unreachable);
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

// Nobody is left behind: the launcher, this node, and what can be reached of the others.
void undo(LaunchWatch& watch, const Plan& plan, pid_t launcher, const std::vector<std::string>& unreachable) {
    // A launcher may end before the daemons that it has told to end.
    const auto daemons =
        plan.placement.on_this_machine != 0 ? session_of(launcher) : std::vector<ProcessName>();
    watch.end_launcher(launcher, launcher_patience);
    for (const auto& daemon : daemons) {
        if (!wait_for_end(daemon, launcher_patience)) {
            end_process(daemon, milliseconds(0));
        }
    }
    auto others = unreachable;
    others.push_back(host_name());
    const auto hosts = plan.placement.on_this_machine != 0 ? std::vector<std::string>()
                                                           : hosts_without(plan.placement.hosts, others);
    const auto unclean =
        run_on_hosts(plan.launcher, hosts, {own_program(), "stop", "--local", "--mount", plan.daemon.mount});
    for (const auto& host : unclean) {
        say("could not clean up on " + host + " (run 'copper stop --local' there)");
    }
    for (const auto& problem : clean_own({.mount = plan.daemon.mount, .batch_job = {}}).problems) {
        say(problem);
    }
}

Failure give_up(LaunchWatch& watch, const Plan& plan, pid_t launcher, const LaunchOutcome& outcome) {
    std::vector<std::string> unreachable;
    const bool several = plan.placement.on_this_machine == 0 && plan.launcher.family != Family::alone;
    // With Slurm the controller knows its nodes, and says itself what is wrong with them.
    if (several && plan.launcher.family != Family::slurm && outcome.end != LaunchEnd::interrupted &&
        !outcome.readiness) {
        unreachable = unreachable_hosts(plan.launcher, plan.placement.hosts);
    }
    undo(watch, plan, launcher, unreachable);
    return {exit_failed, explanation(outcome, plan, unreachable)};
}

std::string in_units(double bytes) {
    constexpr double step = 1024;
    const char* unit = "bytes";
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
        if (bytes < step) {
            break;
        }
        bytes /= step;
        unit = larger;
    }
    std::ostringstream text;
    text.precision(3);
    text << bytes << " " << unit;
    return text.str();
}

// Of a default only the rule is known here, if the nodes are elsewhere.
std::string cache_size(const Plan& plan) {
    const auto given = plan.daemon.cache_bytes;
    if (given == 0 && !plan.on_this_machine_only()) {
        return "a quarter of memory, at most " + in_units(cache_bytes_default_max) + ",";
    }
    return in_units(static_cast<double>(given != 0 ? given : default_cache_bytes(plan.nodes()))) +
           " of memory";
}

void print_success(const Plan& plan) {
    const bool is_default = plan.daemon.mount == canonical_mount(default_mount());
    const std::string mount_flag = is_default ? "" : " --mount " + shell_quote(plan.daemon.mount);
    std::cout << "mount  " << plan.mounts.front()
              << (plan.mounts.size() > 1 ? " to " + plan.mounts.back() : std::string()) << "\n"
              << "nodes  " << plan.nodes() << "\n";
    std::cout << "cache  up to " << cache_size(plan) << " a node\n";
    std::cout << "use    eval \"$(copper env" << mount_flag << ")\"\n";
}

Result<void> start(const Plan& plan) {
    if (auto written = write_files(plan); !written) {
        return written;
    }
    const auto log = open_log(plan.log);
    if (!log) {
        return tl::make_unexpected(log.error());
    }
    auto watch = LaunchWatch::make(path_of(*log));
    if (!watch) {
        return tl::make_unexpected(watch.error());
    }
    // What the daemons write to standard error goes to this command's own output, if that was asked for.
    const int errors = plan.daemon.log_to_output ? STDOUT_FILENO : log->get();
    const auto launcher = spawn({.argv = plan.command,
                                 .environment = {{job_key_variable, JobKey::random().text()}},
                                 .output = log->get(),
                                 .errors = errors,
                                 .own_session = true});
    if (!launcher) {
        remove_launch(plan.daemon.mount);
        return tl::make_unexpected(launcher.error());
    }
    if (const auto written = write_launch(record_of(plan, *launcher)); !written) {
        undo(*watch, plan, *launcher, {});
        return written;
    }
    const auto outcome = watch->wait(*launcher, plan.daemon.ready_timeout + report_margin);
    const bool all = outcome.end == LaunchEnd::reported && outcome.readiness->everywhere() &&
                     outcome.readiness->nodes == plan.nodes();
    if (!all) {
        return tl::make_unexpected(give_up(*watch, plan, *launcher, outcome));
    }
    print_success(plan);
    return {};
}

// Made before the names of files in it are known; removed if nothing comes into it.
class HeldDirectory {
  public:
    static Result<HeldDirectory> make() {
        auto path = make_private_directory();
        if (!path) {
            return failed(path.error());
        }
        if (const auto why = why_elsewhere(*path); !why.empty()) {
            say("warning: " + why);
        }
        return HeldDirectory(std::move(*path));
    }
    HeldDirectory(HeldDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    HeldDirectory& operator=(HeldDirectory&&) = delete;
    ~HeldDirectory() { ::rmdir(path_.c_str()); }

  private:
    explicit HeldDirectory(std::string path) : path_(std::move(path)) {}
    std::string path_;
};

Result<void> launch(const LaunchOptions& options) {
    std::optional<HeldDirectory> directory;
    if (!options.dry_run) {
        auto made = HeldDirectory::make();
        if (!made) {
            return tl::make_unexpected(made.error());
        }
        directory.emplace(std::move(*made));
    }
    const auto plan = make_plan(options);
    if (!plan) {
        return tl::make_unexpected(plan.error());
    }
    if (options.dry_run) {
        std::cout << shell_quote(plan->command) << "\n";
        return {};
    }
    for (const auto& warning : plan->daemon.warnings) {
        say("warning: " + warning);
    }
    if (const auto checked = check_this_node(*plan); !checked) {
        return checked;
    }
    return start(*plan);
}

}  // namespace

void add_launch(CLI::App& app, Action& action) {
    auto options = std::make_shared<LaunchOptions>();
    auto* command =
        app.add_subcommand("launch", "Start one daemon a node; returns 0 only when every node serves");
    add_option_flags(*command, options->flags, {"local", "run-everywhere", "require-key", "ready-timeout"});
    command
        ->add_option("--ready-timeout", options->flags["ready-timeout"],
                     "How long all nodes may take until they serve (default 120)")
        ->type_name("SECONDS")
        ->expected(1);
    command->add_option("--config", options->config, "Read options from this TOML file")->type_name("FILE");
    command
        ->add_option("--local", options->local, "N nodes on this machine, with the mounts DIR.0 to DIR.N-1")
        ->type_name("N");
    command->add_option("--nodes-from", options->nodes_from, "Where the job's nodes are named (default auto)")
        ->type_name("pbs|slurm|FILE|auto");
    command
        ->add_option("--launcher", options->launcher,
                     "What starts the daemons (default auto); COPPER_LAUNCHER_ARGS adds arguments to it")
        ->type_name("auto|mpirun|mpiexec|srun|none");
    command->add_flag("--dry-run", options->dry_run, "Print the command that would be run");
    command->callback([options, &action] {
        if (options->flags["ready-timeout"].empty()) {
            options->flags.erase("ready-timeout");
        }
        action = [options] { return launch(*options); };
    });
}

}  // namespace copper::cli
