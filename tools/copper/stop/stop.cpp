#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <regex>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/host_name.hpp"
#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/profile_files.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/look/statistics.hpp"
#include "tools/copper/nodes/ask_job.hpp"
#include "tools/copper/nodes/batch_jobs.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/nodes/other_nodes.hpp"
#include "tools/copper/programs/mirror.hpp"
#include "tools/copper/stop/cleanup.hpp"

namespace copper::cli {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// For the final statistics: they are not worth a long wait.
constexpr milliseconds statistics_patience{2000};
// Of those that are kept without --log-dir. The statistics of 10,000 nodes take MB.
constexpr std::size_t statistics_files_max = 16;
constexpr std::uintmax_t statistics_bytes_max = std::uintmax_t{64} << 20;
constexpr milliseconds look_patience{1000};
constexpr milliseconds stop_patience{10000};
// If a daemon is known to be dead, waiting for its answer is in vain.
constexpr milliseconds short_stop_patience{3000};
// From a node's answer to the end of its daemon, which may wait for 10 s in MPI_Finalize.
constexpr milliseconds end_patience{20000};
// From there to the end of the launcher.
constexpr milliseconds launcher_patience{10000};

struct StopOptions {
    std::string mount;
    bool local = false;
    std::string user;
    std::string batch_job;
    std::string launch;
    bool tell_host = false;
};

void print_summary(const JobStatistics& job) {
    const auto files = total(job.sum, "fuse", "files_read");
    const auto opens = total(job.sum, "backing", "file_opens");
    const auto direct = total(job.sum, "fallbacks", "direct_reads");
    std::cout << text_of(job.sum, "nodes") << " of " << job.nodes << " nodes served " << files
              << " files to your programs; the filesystem opened " << opens << times_fewer(files, opens)
              << (direct == 0
                      ? ""
                      : "; nodes that could not wait made " + std::to_string(direct) + " direct reads")
              << "\n";
    if (files < job.sum["nodes"].get<std::uint64_t>()) {
        std::cout << "hardly any program used the mirror (files read: " << files
                  << "). Start programs with 'copper run', or activate the environment before 'copper env'\n";
    }
}

void show(const CleanReport& report) {
    for (const auto& line : report.done) {
        std::cout << line << "\n";
    }
    for (const auto& line : report.problems) {
        say(line);
    }
}

// Says `nothing_done` if there was nothing to clean up.
Result<void> conclude(const CleanReport& report,
                      const std::string& nothing_done = "nothing of Copper was left on this node") {
    show(report);
    if (report.done.empty() && report.problems.empty()) {
        std::cout << nothing_done << "\n";
    }
    if (!report.problems.empty()) {
        return failed("not everything could be cleaned up on this node (see above)");
    }
    return {};
}

Result<uid_t> user_named(const std::string& name) {
    if (const passwd* entry = ::getpwnam(name.c_str()); entry != nullptr) {
        return entry->pw_uid;
    }
    uid_t user = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), user);
    if (error != std::errc() || end != name.data() + name.size()) {
        return misused("--user " + name + ": no such user");
    }
    return user;
}

// The other jobs whose mirrors here would be spared, but that are over.
void add_jobs_over(const std::optional<uid_t>& user, CleanScope& scope) {
    JobQuestions questions;
    for (const auto& spared : spared_mirrors(user, scope)) {
        questions.ask(spared.batch_job);
    }
    for (const auto& [job, answer] : questions.answers()) {
        std::cout << answer.reason << "\n";
        if (answer.life == JobLife::over) {
            scope.jobs_over.insert(job);
        }
    }
}

// Ends what jobs left that are over, and names what is spared.
Result<void> clean_node(const std::optional<uid_t>& user, CleanScope scope, const StopOptions& options) {
    // An epilogue names its job, which is over with all jobs within it, and must not wait for the batch
    // system.
    if (options.batch_job.empty()) {
        add_jobs_over(user, scope);
    } else if (!scope.mount) {
        for (const auto& spared : spared_mirrors(user, scope)) {
            if (is_within_job(spared.batch_job, options.batch_job)) {
                scope.jobs_over.insert(spared.batch_job);
            }
        }
    }
    const bool is_roots = ::geteuid() == 0 && !scope.mount;
    const auto report = is_roots ? clean_users(user, scope) : clean_own(scope);
    std::string nothing_done = "nothing of Copper was left on this node";
    for (const auto& [mount, job] : spared_mirrors(user, scope)) {
        nothing_done += "; spared " + mount + ", the mirror of job " + job +
                        " ('copper stop --local --batch-job " + shell_quote(job) + mount_flag(mount) +
                        "' ends it)";
    }
    return conclude(report, nothing_done);
}

Result<void> stop_this_node(const StopOptions& options) {
    CleanScope scope{.launch = options.launch};
    if (const auto job = options.batch_job.empty() ? batch_job_id() : options.batch_job;
        !job.empty() && job != any_job) {
        scope.batch_job = job;
    }
    if (!options.mount.empty()) {
        const auto mount = mount_named(options.mount);
        if (!mount) {
            return tl::make_unexpected(mount.error());
        }
        scope.mount = *mount;
        return clean_node(::geteuid(), std::move(scope), options);
    }
    std::optional<uid_t> user;
    if (!options.user.empty()) {
        const auto named = user_named(options.user);
        if (!named) {
            return tl::make_unexpected(named.error());
        }
        user = *named;
    }
    if (::geteuid() != 0) {
        if (user && *user != ::getuid()) {
            return misused("--user " + options.user + ": only root cleans up for others");
        }
        user = ::getuid();
    }
    return clean_node(user, std::move(scope), options);
}

bool is_alive(const Found& instance) {
    return is_running(instance.record.pid, instance.record.pid_started);
}

void wait_for_ends(const std::vector<Found>& found, const std::optional<LaunchRecord>& launch,
                   const std::optional<ControlReply>& reply) {
    if (!reply) {
        return;  // nobody was told to end: the clean-up does it
    }
    for (const auto& instance : found) {
        const auto same_rank = [&](const ControlReply::Part& part) {
            return part.rank == instance.record.rank;
        };
        if (std::any_of(reply->parts.begin(), reply->parts.end(), same_rank)) {
            wait_for_end({instance.record.pid, instance.record.pid_started}, end_patience);
            wait_for_end({instance.record.supervisor, instance.record.supervisor_started}, end_patience);
        }
    }
    // A launcher does not end before its processes.
    if (launch && std::none_of(found.begin(), found.end(), is_alive)) {
        wait_for_end(launch->process, launcher_patience);
    }
}

// Of earlier jobs. Spares what replace_file() does not write.
void remove_older_statistics(const std::string& directory) {
    static const std::regex name(R"(.*\.json(\..{6})?)");
    std::error_code error;
    std::vector<std::pair<fs::file_time_type, fs::path>> latest_first;
    for (fs::directory_iterator file(directory, error), end; !error && file != end; file.increment(error)) {
        if (file->is_regular_file(error) && std::regex_match(file->path().filename().string(), name)) {
            latest_first.emplace_back(file->last_write_time(error), file->path());
        }
    }
    std::ranges::sort(latest_first, std::greater());
    std::uintmax_t bytes = 0;
    for (std::size_t i = 0; i < latest_first.size(); ++i) {
        const auto& file = latest_first[i].second;
        const auto size = fs::file_size(file, error);
        bytes += error ? 0 : size;
        if (i >= statistics_files_max || (i > 0 && bytes > statistics_bytes_max)) {
            fs::remove(file, error);
        }
    }
}

void warn_of_lost_statistics(const std::string& reason) {
    say("warning: statistics are lost: " + reason);
}

// In --log-dir, or else beside the user's profiles. Only after all else: these places may hang.
void keep_statistics(const InstanceRecord& record, const std::string& statistics) {
    const auto directory = record.log_dir.empty() ? statistics_directory() : record.log_dir;
    if (directory.empty()) {
        warn_of_lost_statistics("this user has no home");
        return;
    }
    auto name =
        record.log_dir.empty() ? record.job + "-" + record.launch.substr(0, 8) + ".json" : "stats.json";
    std::ranges::replace(name, '/', '_');
    const auto path = directory + "/" + name;
    if (const auto written = replace_file(path, statistics); !written) {
        warn_of_lost_statistics(written.error());
        return;
    }
    if (record.log_dir.empty()) {
        remove_older_statistics(directory);
        std::cout << "statistics: " << path << "\n";
    }
}

// As `copper stats --json`, and all that `copper report` needs. Empty if the job does not answer.
std::string last_statistics(const std::string& mount, const std::vector<Found>& found) {
    const auto job = ask_sum(mount, found, reported_paths, "stop", statistics_patience);
    if (!job) {
        return {};
    }
    print_summary(*job);
    const auto json =
        statistics_to_keep(*job, [&] { return ask_each_node(mount, found, 0, statistics_patience); });
    return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<ControlReply> tell_to_stop(const std::string& mount, const std::vector<Found>& found,
                                         milliseconds patience) {
    auto reply = ask_job(mount, found, {verb::stop, "", patience}, "stop");
    if (!reply) {
        say(reply.error().reason + "\n  stopping it without its help");
        return std::nullopt;
    }
    return std::move(*reply);
}

// "0:38" of mountinfo is "00:26" in /proc/PID/maps (proc(5)).
std::string as_in_maps(const std::string& device) {
    unsigned major = 0, minor = 0;
    std::array<char, 32> text{};
    if (std::sscanf(device.c_str(), "%u:%u", &major, &minor) == 2) {
        std::snprintf(text.data(), text.size(), "%02x:%02x", major, minor);
    }
    return text.data();
}

// Those that have a file of these mirrors in their memory, as "python3 (17)". A page that they have not read
// yet will be gone (SIGBUS).
std::vector<std::string> programs_within(const std::vector<Found>& found) {
    // (In a view, their paths are the original ones.)
    std::set<std::string> devices;
    for (const auto& mount : read_mounts()) {
        if (std::ranges::any_of(found, [&](const Found& one) { return one.record.mount == mount.point; })) {
            devices.insert(as_in_maps(mount.device));
        }
    }
    std::vector<std::string> programs;
    std::error_code error;
    for (const auto& process : fs::directory_iterator("/proc", error)) {
        std::ifstream maps(process.path() / "maps");  // of other users and tasks: unreadable, empty
        for (std::string line; std::getline(maps, line);) {
            std::string addresses, access, offset, device;
            std::istringstream(line) >> addresses >> access >> offset >> device;
            if (devices.contains(device)) {
                std::string name;
                std::getline(std::ifstream(process.path() / "comm"), name);
                programs.push_back(name + " (" + process.path().filename().string() + ")");
                break;
            }
        }
    }
    return programs;
}

// Not for long: the kernel lets nobody look at a program that changes its memory while the mirror hangs.
void warn_of_programs_within(const std::vector<Found>& found) {
    std::promise<std::vector<std::string>> promise;
    auto future = promise.get_future();
    try {
        std::thread([promise = std::move(promise), found]() mutable {
            promise.set_value(programs_within(found));
        }).detach();
    } catch (const std::system_error&) {  // the user has no thread left
        return;
    }
    if (future.wait_for(look_patience) != std::future_status::ready) {
        return;
    }
    if (const auto programs = future.get(); !programs.empty()) {
        say("warning: still run from the mirror on this node, and may be killed by SIGBUS: " +
            some_of(programs));
    }
}

// What ends: the instances on this node, and the launch if it was made here.
struct Target {
    std::vector<Found> found;
    std::optional<LaunchRecord> launch;
    CleanScope scope;
    bool is_over = false;  // their batch job: nothing can be started in it any more
};

// What is at the mount: the mirror of job `own`, or what a job that is over has left there. Jobs of one user
// may share a node: of another job that may still run, only what is dead goes, and on this node only. Fails
// if nothing but its live mirror is here.
Result<Target> target_at(const std::string& mount, const std::string& own) {
    auto found = instances_named(mount, ::getuid());
    auto launch = read_launch(mount);
    JobQuestions others;
    const auto is_others = [&](const std::string& job) {
        return own != any_job && are_different_jobs(own, job);
    };
    const auto is_held_by_other = [&](const std::string& job) {
        return is_others(job) && others.ask(job).life != JobLife::over;
    };
    bool is_held = false;
    bool is_over = false;
    if (launch && is_held_by_other(launch->batch_job)) {
        is_held = true;
        launch.reset();
    } else if (launch && is_others(launch->batch_job)) {
        launch->batch_job = batch_job_id();
        is_over = true;
    }
    for (auto& [directory, record] : found) {
        if (is_held_by_other(record.batch_job)) {
            is_held = true;
            record.run_everywhere.clear();
        }
    }
    std::erase_if(found, [&](const Found& one) {
        return is_held_by_other(one.record.batch_job) && is_running(one.record);
    });
    for (const auto& [job, answer] : others.answers()) {
        if (found.empty() && !launch) {
            return failed(mount + " is the mirror of job " + job + ": end it there, or with " +
                          stop_command_for(job, mount) + "\n  " + answer.reason);
        }
        std::cout << answer.reason << "\n";
    }
    CleanScope scope{.mount = mount};
    if (is_held) {
        scope.batch_job = own;
    }
    // The own job's before what another one has left.
    std::stable_partition(found.begin(), found.end(),
                          [&](const Found& one) { return !is_others(one.record.batch_job); });
    // A launch that was killed early has left no record, or not its own.
    const auto runs = std::ranges::find_if(found, [](const Found& one) { return is_running(one.record); });
    const bool is_left = launch && (is_running(launch->process) || runs == found.end());
    scope.launch = is_left               ? launch->launch
                   : runs != found.end() ? runs->record.launch
                   : found.empty()       ? std::string()
                                         : found.front().record.launch;
    std::erase_if(found, [&](const Found& one) {
        return !scope.launch.empty() && !one.record.launch.empty() && one.record.launch != scope.launch;
    });
    is_over = is_over || (!found.empty() && is_others(found.front().record.batch_job));
    return Target{std::move(found), std::move(launch), std::move(scope), is_over};
}

// As conclude(), for this node and the others. Those of a job that is over may be out of reach.
Result<void> conclude_job(const CleanReport& report, const std::vector<Trouble>& unclean, bool is_over,
                          const std::string& mount) {
    for (const auto& trouble : unclean) {
        say("could not clean up on " + trouble.host + " (run 'copper stop --local' there)");
    }
    auto concluded = conclude(report, "stopped " + mount);
    if (!concluded || unclean.empty() || is_over) {
        return concluded;
    }
    return failed("not every node could be reached for the clean-up (see above)");
}

Result<void> stop_job(const StopOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto target = target_at(*mount, options.batch_job.empty() ? batch_job_id() : options.batch_job);
    if (!target) {
        return tl::make_unexpected(target.error());
    }
    const auto& [found, launch, scope, is_over] = *target;
    const auto alive = std::count_if(found.begin(), found.end(), is_alive);
    const bool all = static_cast<std::size_t>(alive) == found.size();
    const auto statistics = alive != 0 ? last_statistics(*mount, found) : std::string();
    warn_of_programs_within(found);
    const auto reply =
        alive != 0 ? tell_to_stop(*mount, found, all ? stop_patience : short_stop_patience) : std::nullopt;
    const auto unclean = run_on_silent_nodes(clean_command(scope), launch, found, reply);
    wait_for_ends(found, launch, reply);
    if (!found.empty()) {
        keep_launch_log(*mount, found.front().record.log_dir);
    }
    const auto report = clean_own(scope);
    if (found.empty() && !launch && report.done.empty() && report.problems.empty()) {
        std::cout << "nothing serves " << *mount << " on this node\n";
        return {};
    }
    const auto& named = options.batch_job;
    auto concluded =
        conclude_job(report, unclean,
                     is_over || (!unclean.empty() && !named.empty() && named != any_job &&
                                 named != batch_job_id() && JobQuestions().ask(named).life == JobLife::over),
                     *mount);
    if (!statistics.empty()) {
        keep_statistics(found.front().record, statistics);
    }
    return concluded;
}

}  // namespace

void add_stop(CLI::App& app, Action& action) {
    auto options = std::make_shared<StopOptions>();
    auto* command =
        app.add_subcommand("stop", "Unmount and end all daemons of the job; does nothing if there are none");
    auto* mount = add_mount_option(*command, options->mount);
    auto* local = command->add_flag("--local", options->local,
                                    "This node only, in any state, without a launcher: all of this "
                                    "user's instances (as root: everybody's), or that of --mount");
    command->add_option("--user", options->user, "With --local, as root: only this user's (name or id)")
        ->type_name("USER")
        ->needs(local)
        ->excludes(mount);
    command
        ->add_option(
            "--batch-job", options->batch_job,
            "End the mirror of this batch job (default: the job that this runs in; any: of whichever "
            "job). With --local, what belongs to no job or has no live daemon goes, too")
        ->type_name("ID");
    command->footer(
        "Keeps the job's statistics in the --log-dir of the launch, or in ~/.cache/copper/statistics, for\n"
        "'copper report FILE'.\n\n"
        "Examples:\n"
        "  copper stop\n"
        "  copper stop --local                     # in a job epilogue, or to clear a dead mount\n"
        "  copper stop --local --user alice        # as root");
    command->add_option("--launch", options->launch)->group("")->needs(local);
    command->add_flag("--tell-host", options->tell_host)->group("")->needs(local);
    command->callback([options, &action] {
        action = [options] {
            const auto stopped = options->local ? stop_this_node(*options) : stop_job(*options);
            if (stopped && options->tell_host) {
                std::cout << done_prefix << host_name() << std::endl;
            }
            return stopped;
        };
    });
}

}  // namespace copper::cli
