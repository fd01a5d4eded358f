#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "base/host_name.hpp"
#include "base/own_files.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/job_key_variable.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/option_flags.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/launch/node_checks.hpp"
#include "tools/copper/launch/plan.hpp"
#include "tools/copper/launch/report.hpp"
#include "tools/copper/launch/troubles.hpp"
#include "tools/copper/launch/watch.hpp"
#include "tools/copper/launch/without_mirror.hpp"
#include "tools/copper/nodes/batch_jobs.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/programs/mirror.hpp"
#include "tools/copper/programs/prefetch.hpp"
#include "tools/copper/stop/cleanup.hpp"

namespace copper::cli {

namespace {

using std::chrono::milliseconds;

// Rank 0 gives up after --ready-timeout and reports; this time is for the report to arrive.
constexpr milliseconds report_margin{10000};
constexpr milliseconds launcher_patience{10000};
// Then it is worth asking the nodes. Most jobs take a second or two, large ones longer.
constexpr milliseconds silence_max{10000};
constexpr milliseconds silence_max_per_node{10};
// And again after this part of the time for all nodes to serve.
constexpr int look_again_part = 4;
// Another user may have the mount, the private directory, or both. And no daemon may start on some nodes.
constexpr int attempts_max = 3;

// What a try to launch starts from.
struct Beginning {
    Places places;
    std::vector<Trouble> left_out = {};  // as in Plan
    bool operator==(const Beginning&) const = default;
};

// How a try ended, if daemons were started.
struct End {
    LaunchOutcome outcome;
    std::vector<Trouble> troubles = {};  // nodes that keep MPI from starting
};

// Finds reasons why the daemons would fail, before any is started.
Result<void> check_this_node(const Plan& plan) {
    std::vector<Finding> findings = {check_limits()};
    const bool may_lack_mirror = plan.daemon.allow_missing > 0 && plan.nodes() > 1;
    if (!may_lack_mirror) {
        findings.push_back(check_fuse(plan.daemon.allow_other));
    }
    for (const auto& finding : findings) {
        if (finding.verdict == Verdict::problem) {
            return lacking(finding.text + ": " + finding.advice);
        }
    }
    return {};
}

Result<void> check_mounts(const Plan& plan) {
    const auto launch = read_launch(plan.daemon.mount);
    if (launch && is_running(launch->process)) {
        return failed(already_served(
            {.mount = plan.daemon.mount, .pid = launch->process.pid, .batch_job = launch->batch_job},
            plan.daemon.batch_job));
    }
    for (const auto& mount : plan.mounts) {
        if (const auto live = find_live_instance(::getuid(), mount)) {
            return failed(already_served(*live, plan.daemon.batch_job));
        }
        const auto mounts = copper_mounts();
        if (std::any_of(mounts.begin(), mounts.end(),
                        [&](const CopperMount& m) { return m.point == mount; })) {
            return failed(mount + ": a dead Copper mount is there (clear it with " + stop_command(mount) +
                          ")");
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
            .batch_job = plan.daemon.batch_job,
            .batch_run = plan.daemon.batch_run,
            .launch = plan.daemon.launch,
            .process = process_named(launcher),
            .launcher = plan.launcher,
            .hosts = plan.placement.on_this_machine != 0 ? std::vector<std::string>() : plan.placement.hosts,
            .left_out = plan.left_out,
            .on_this_machine = plan.placement.on_this_machine,
            .log_dir = plan.daemon.log_dir};
}

// Cleans up the launcher, this node, and all other nodes that can be reached.
void undo(LaunchWatch& watch, const Plan& plan, pid_t launcher, const std::vector<Trouble>& troubles) {
    // A launcher may end before its daemons do.
    const auto daemons =
        plan.placement.on_this_machine != 0 ? session_of(launcher) : std::vector<ProcessName>();
    watch.end_launcher(launcher, launcher_patience);
    keep_launch_log(plan.daemon.mount, plan.daemon.log_dir);
    for (const auto& daemon : daemons) {
        if (!wait_for_end(daemon, launcher_patience)) {
            end_process(daemon, milliseconds(0));
        }
    }
    std::vector<std::string> others = {host_name()};
    for (const auto& trouble : troubles) {
        if (!trouble.answers) {
            others.push_back(trouble.host);
        }
    }
    const auto hosts = plan.placement.on_this_machine != 0 ? std::vector<std::string>()
                                                           : hosts_without(plan.placement.hosts, others);
    const auto unclean = run_on_hosts(
        plan.launcher, hosts, clean_command({.mount = plan.daemon.mount, .launch = plan.daemon.launch}));
    for (const auto& trouble : unclean) {
        say("could not clean up on " + trouble.host + " (run 'copper stop --local' there)");
    }
    for (const auto& problem :
         clean_own({.mount = plan.daemon.mount, .launch = plan.daemon.launch}).problems) {
        say(problem);
    }
}

std::map<std::string, std::string> daemons_environment(const Plan& plan) {
    std::map<std::string, std::string> added = {{job_key_variable, JobKey::random().text()}};
    // With Slurm 22.05's default, about one launch in 30 failed: a daemon left MPI_Init, and sent messages,
    // while another one, which crashed on them, still waited in the first of its two fences. Its tree never
    // ends if the step's nodes have gaps among those of the job.
    constexpr const char* fence_variable = "SLURM_PMIX_FENCE";
    if (plan.launcher.family == Family::slurm && !read_variable(fence_variable)) {
        added[fence_variable] = plan.left_out.empty() ? "tree" : "ring";
    }
    constexpr const char* library_path = "LD_LIBRARY_PATH";
    const auto libraries = read_variable(library_path);
    const auto conda = read_variable("CONDA_PREFIX");
    if (libraries && conda && std::ranges::count(plan.launcher.keep_env, library_path) == 0) {
        added[library_path] = without_conda(*libraries, *conda);
    }
    return added;
}

// A mirror of another batch job that has the mount on some of the nodes.
struct Occupant {
    std::string batch_job;
    std::string batch_run;
    std::string launch;
    bool runs = false;  // on any of them
    std::vector<std::string> hosts = {};
};

bool is_of_earlier_run(const Occupant& one, const Plan& plan) {
    return one.batch_job == plan.daemon.batch_job && is_earlier_run(one.batch_run, plan.daemon.batch_run);
}

void add(std::vector<Occupant>& occupants, const Occupant& one, const Plan& plan) {
    if (!are_different_jobs(one.batch_job, plan.daemon.batch_job) && !is_of_earlier_run(one, plan)) {
        return;
    }
    const auto same = std::ranges::find_if(occupants, [&](const Occupant& each) {
        return each.batch_job == one.batch_job && each.launch == one.launch;
    });
    if (same == occupants.end()) {
        occupants.push_back(one);
        return;
    }
    same->runs = same->runs || one.runs;
    same->hosts.insert(same->hosts.end(), one.hosts.begin(), one.hosts.end());
}

std::vector<Occupant> occupants_here(const Plan& plan) {
    std::vector<Occupant> occupants;
    for (const auto& [directory, record] : instances_named(plan.daemon.mount, ::getuid())) {
        if (std::ranges::count(plan.mounts, record.mount) != 0) {
            add(occupants,
                {record.batch_job, record.batch_run, record.launch, is_running(record), {host_name()}}, plan);
        }
    }
    const auto launch = read_launch(plan.daemon.mount);
    if (launch && is_running(launch->process)) {
        add(occupants, {launch->batch_job, launch->batch_run, launch->launch, true, {host_name()}}, plan);
    }
    return occupants;
}

// Those that kept nodes from serving.
std::vector<Occupant> occupants_of(const LaunchOutcome& outcome, const Plan& plan) {
    std::vector<Occupant> occupants;
    const bool is_final = outcome.end == LaunchEnd::reported && outcome.readiness;
    for (const auto& node : is_final ? outcome.readiness->failed : std::vector<Readiness::Failed>()) {
        add(occupants, {node.batch_job, node.batch_run, node.launch, node.is_served, {node.host}}, plan);
    }
    return occupants;
}

void run_on_nodes(const Plan& plan, const std::vector<std::string>& hosts,
                  const std::vector<std::string>& command) {
    if (hosts_without({host_name()}, hosts).empty()) {
        capture(command, hosts_patience);
    }
    if (plan.placement.on_this_machine == 0) {
        run_on_hosts(plan.launcher, hosts_without(hosts, {host_name()}), command);
    }
}

// Makes room for this launch: ends the mirrors of jobs that are over, and clears what
// has no live daemon. With `failure`, if the job of one of them may still run: then nothing is changed.
Result<void> end_occupants(const Plan& plan, const std::vector<Occupant>& occupants, const Failure& failure) {
    JobQuestions questions;
    for (const auto& occupant : occupants) {
        if (is_of_earlier_run(occupant, plan)) {
            continue;  // or this run would not be
        }
        // Where nothing lives any more, the job may still run: its programs know this mount.
        const auto& answer = questions.ask(occupant.batch_job);
        const bool may_end = occupant.runs ? answer.life == JobLife::over : answer.life != JobLife::alive;
        if (!may_end) {
            return tl::make_unexpected(Failure{failure.exit_code, failure.reason + "\n  " + answer.reason});
        }
    }
    for (const auto& occupant : occupants) {
        const auto& [job, run, launch, runs, hosts] = occupant;
        const auto& mount = plan.daemon.mount;
        const auto whose = (is_of_earlier_run(occupant, plan) ? "an earlier run of job " : "job ") + job;
        if (!runs) {
            say("clearing what " + whose + " has left at " + mount);
            // Spares what is alive: that job may still run on other nodes.
            run_on_nodes(
                plan, hosts,
                clean_command({.mount = mount, .batch_job = plan.daemon.batch_job, .launch = launch}));
            continue;
        }
        say(whose + " is over: ending its mirror at " + mount);
        // One of its daemons tells the others, also those on nodes that this job does not have.
        run_on_nodes(plan, {hosts.front()}, {own_program(), "stop", "--mount", mount, "--batch-job", job});
        run_on_nodes(plan,
                     plan.placement.on_this_machine == 0 ? plan.placement.hosts
                                                         : std::vector<std::string>{host_name()},
                     clean_command({.mount = mount, .batch_job = job, .launch = launch}));
    }
    return {};
}

// Ends what jobs that are over have left on this node, and looks for what would keep the daemon from
// starting.
Result<void> make_room_here(const Plan& plan) {
    if (auto checked = check_this_node(plan); !checked) {
        return checked;
    }
    const auto free = check_mounts(plan);
    const auto occupants = free ? std::vector<Occupant>() : occupants_here(plan);
    if (occupants.empty()) {
        return free;
    }
    return end_occupants(plan, occupants, free.error()).and_then([&] { return check_mounts(plan); });
}

Failure give_up(LaunchWatch& watch, const Plan& plan, pid_t launcher, End& end) {
    // Slurm's controller knows its nodes and reports their faults itself.
    const bool reports_faults = plan.launcher.family == Family::slurm && plan.daemon.allow_missing == 0;
    if (end.troubles.empty() && end.outcome.end == LaunchEnd::ended && !end.outcome.readiness &&
        !reports_faults) {
        end.troubles = NodeLooks(plan).look();
    }
    undo(watch, plan, launcher, end.troubles);
    return {exit_failed, explanation(end.outcome, plan, end.troubles)};
}

// Waits for the final report. Without one of them, the daemons wait in MPI_Init, and nobody reports anything.
// So if there is silence, looks for nodes that plainly fail.
LaunchOutcome follow(LaunchWatch& watch, const Plan& plan, pid_t launcher, std::vector<Trouble>& troubles) {
    using Clock = std::chrono::steady_clock;
    const milliseconds patience = plan.daemon.ready_timeout + report_margin;
    const milliseconds silence = silence_max + plan.nodes() * silence_max_per_node;
    const auto begin = Clock::now();
    const auto wait_until = [&](milliseconds time) {
        return watch.wait(launcher, std::chrono::duration_cast<milliseconds>(begin + time - Clock::now()));
    };
    const auto is_silent = [](const LaunchOutcome& outcome) {
        return outcome.end == LaunchEnd::timed_out && !outcome.readiness;
    };
    NodeLooks looks(plan);
    LaunchOutcome outcome;
    for (const auto time : {silence, std::max(2 * silence, patience / look_again_part), patience}) {
        outcome = wait_until(std::min(time, patience));
        if (!is_silent(outcome)) {
            break;
        }
        troubles = looks.look();
        outcome = wait_until(milliseconds(0));  // what it has said meanwhile
        if (!is_silent(outcome) || !troubles.empty()) {
            break;
        }
    }
    if (!is_silent(outcome)) {
        troubles.clear();
    }
    // Once it reports anything, rank 0 reports about all nodes.
    return outcome.end == LaunchEnd::timed_out && outcome.readiness ? wait_until(patience) : outcome;
}

Result<void> start(const Plan& plan, End& end) {
    if (auto written = write_files(plan); !written) {
        return written;
    }
    const auto log = open_log(plan.log);
    if (!log) {
        return tl::make_unexpected(log.error());
    }
    auto watch = LaunchWatch::make(path_of(*log), plan.left_out.size());
    if (!watch) {
        return tl::make_unexpected(watch.error());
    }
    // If the user asked for it, the daemons' standard error goes to this command's output.
    const int errors = plan.daemon.log_to_output ? STDOUT_FILENO : log->get();
    const auto launcher = spawn({.argv = plan.command,
                                 .environment = daemons_environment(plan),
                                 .without = variables_of_application(plan.launcher.keep_env),
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
    end = {};
    end.outcome = follow(*watch, plan, *launcher, end.troubles);
    const bool serves = end.outcome.end == LaunchEnd::reported && end.outcome.readiness->serves &&
                        end.outcome.readiness->nodes == plan.nodes();
    if (!serves) {
        return tl::make_unexpected(give_up(*watch, plan, *launcher, end));
    }
    const auto missing = missing_nodes(end.outcome, plan);
    for (const auto& node : missing) {
        say(node.host + " has no mirror: " + node.reason);
    }
    note_without_mirror(plan, missing);
    print_success(plan, missing.size());
    return {};
}

// If mirrors of jobs that are over are in the way on other nodes, that shows only when daemons start there.
Result<void> start_after_others(const Plan& plan, End& end) {
    const auto started = start(plan, end);
    const auto occupants = started ? std::vector<Occupant>() : occupants_of(end.outcome, plan);
    if (occupants.empty()) {
        return started;
    }
    if (const auto ended = end_occupants(plan, occupants, started.error()); !ended) {
        return ended;
    }
    return start(plan, end);
}

// The usual places, or others if another user has them on this node.
Places places_here() {
    Places places{.private_directory = usual_private_directory(::geteuid())};
    if (const auto why = why_directory_is_taken(usual_private_directory(::geteuid())); !why.empty()) {
        const auto own = private_directories(::geteuid());  // of earlier jobs
        places.private_directory = own.empty() ? another_private_directory() : own.front().path;
        say("warning: " + why + "; this job uses " + places.private_directory + " on all nodes");
    }
    places.mount_is_taken = !why_default_mount_is_taken().empty();
    return places;
}

// Others, for all nodes, if that helps: another user has one of `places` on some node.
Places other_places(const Plan& plan, const LaunchOutcome& outcome, Places places) {
    bool directory_is_taken = false;
    const bool is_final = outcome.end == LaunchEnd::reported && outcome.readiness;  // not after Ctrl-C
    for (const auto& node : is_final ? outcome.readiness->failed : std::vector<Readiness::Failed>()) {
        const bool is_mount = node.taken == "mount" && plan.uses_default_mount && !places.mount_is_taken;
        const bool is_directory = node.taken == "private_directory";
        if (is_mount || is_directory) {
            say("warning: " + node.host + ": " + node.reason +
                "; trying again with another place on all nodes");
        }
        places.mount_is_taken = places.mount_is_taken || is_mount;
        directory_is_taken = directory_is_taken || is_directory;
    }
    if (directory_is_taken) {
        const auto usual = usual_private_directory(::geteuid());
        const auto own = private_directories(::geteuid());  // of earlier jobs
        const auto other = std::ranges::find_if(own, [&](const PrivateDirectory& directory) {
            return directory.path != usual && directory.path != places.private_directory;
        });
        places.private_directory = other != own.end() ? other->path : another_private_directory();
    }
    return places;
}

// Those that failed, if the job may go on without them.
std::vector<Trouble> left_out_after(const Plan& plan, const std::vector<Trouble>& troubles) {
    auto left_out = plan.left_out;
    if (troubles.size() > plan.daemon.allow_missing ||
        hosts_without(plan.placement.hosts, hosts_of(troubles)).empty()) {
        return left_out;
    }
    left_out.insert(left_out.end(), troubles.begin(), troubles.end());
    return left_out;
}

// Changes `from` if another try with that might succeed.
Result<void> launch_from(Beginning& from, const LaunchOptions& options) {
    auto& places = from.places;
    if (!options.dry_run) {  // the plan names files in it
        if (const auto made = make_private_directory(places.private_directory); !made) {
            return failed(made.error());
        }
    }
    const auto plan = make_plan(options, places, from.left_out);
    if (!plan) {
        return tl::make_unexpected(plan.error());
    }
    for (const auto& warning : plan->daemon.warnings) {
        say("warning: " + warning);
    }
    if (const auto why = why_default_mount_is_taken();
        !why.empty() && plan->daemon.mount == mount_within(plan->daemon.private_directory)) {
        say("warning: " + why + "; this job mounts " + plan->daemon.mount);
    }
    if (options.dry_run) {
        std::cout << shell_quote(plan->command) << "\n";
        return {};
    }
    for (const auto& path : options.prefetch) {
        if (!resolve_path(path)) {
            return misused("--prefetch " + path + ": no such path");
        }
    }
    const auto lock = LaunchLock::take(plan->daemon.mount);
    if (!lock) {
        return tl::make_unexpected(lock.error());
    }
    if (const auto room = make_room_here(*plan); !room) {
        return room;
    }
    End end;
    if (const auto started = start_after_others(*plan, end); !started) {
        places = other_places(*plan, end.outcome, places);
        from.left_out = left_out_after(*plan, end.troubles);
        return started;
    }
    if (!options.prefetch.empty() && is_without_mirror(plan->daemon.mount)) {
        say("warning: --prefetch: this node has no mirror; use 'copper prefetch' on another one");
        return {};
    }
    return prefetch(plan->daemon.mount, options.prefetch);
}

Result<void> launch(const LaunchOptions& options) {
    Beginning from{.places = places_here()};
    for (int attempt = 1;; ++attempt) {
        const auto tried = from;
        auto launched = launch_from(from, options);
        if (launched || from == tried || attempt == attempts_max) {
            return launched;
        }
        for (auto i = tried.left_out.size(); i < from.left_out.size(); ++i) {
            const auto& [host, reason, answers] = from.left_out[i];
            say("warning: " + host + ": " + reason + "; trying again without this node");
        }
    }
}

}  // namespace

void add_launch_options(CLI::App& command, LaunchOptions& options) {
    add_option_flags(command, options.flags,
                     {"local", "run-everywhere", "lease", "require-key", "ready-timeout", "batch-job",
                      "batch-run", "launch", "nodes"});
    command
        .add_option("--ready-timeout", options.flags["ready-timeout"],
                    "Time for all nodes to start serving (default 120)")
        ->type_name("SECONDS")
        ->expected(1);
    command.add_option("--config", options.config, "Read options from this TOML file")->type_name("FILE");
    command.add_option("--local", options.local, "N nodes on this machine, with the mounts DIR.0 to DIR.N-1")
        ->type_name("N");
    command.add_option("--nodes-from", options.nodes_from, "Source of the list of nodes (default auto)")
        ->type_name("pbs|slurm|flux|lsf|sge|FILE|HOST,HOST|auto");
    command
        .add_option("--launcher", options.launcher,
                    "What starts the daemons (default auto); COPPER_LAUNCHER_ARGS adds arguments to it")
        ->type_name("auto|mpirun|mpiexec|PATH|srun|flux|none");
    command
        .add_option("--prefetch", options.prefetch,
                    "After the launch, read PATH and everything below it in the background")
        ->type_name("PATH")
        ->take_all();
    command
        .add_option(
            "--keep-env", options.keep_env,
            "Pass this variable on to the daemons, which do not get those for the application: LD_PRELOAD, "
            "OMPI_MCA_*, PRTE_MCA_*, UCX_*, MPIR_CVAR_*, MPICH_GPU_*, MPICH_OFI_*, FI_HMEM*, srun's options "
            "for "
            "steps (SLURM_NTASKS_PER_GPU, ...), conda's part of LD_LIBRARY_PATH. "
            "Repeatable")
        ->type_name("NAME")
        ->allow_extra_args(false);
}

void add_launch(CLI::App& app, Action& action) {
    auto options = std::make_shared<LaunchOptions>();
    auto* command =
        app.add_subcommand("launch",
                           "Start one daemon per node; returns 0 only when every node serves, or all but "
                           "--allow-missing N");
    add_launch_options(*command, *options);
    command->add_flag("--dry-run", options->dry_run, "Print the command without running it");
    command->footer(
        "Each option can also be a variable (COPPER_CACHE_BYTES=8G), or a key of the --config\n"
        "file. Flags win over variables, variables over the file.\n\n"
        "Examples:\n"
        "  copper launch --tree /lustre/sw/conda            # on all nodes of the batch job\n"
        "  copper launch --tree /lustre/sw --cache-bytes 8G --log-dir ~/logs\n"
        "  copper launch --local 4 --tree /usr/lib/python3  # four nodes on this machine, to try it");
    command->callback([options, &action] {
        if (options->flags["ready-timeout"].empty()) {
            options->flags.erase("ready-timeout");
        }
        action = [options] { return launch(*options); };
    });
}

}  // namespace copper::cli
