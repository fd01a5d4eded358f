#include "tools/copper/nodes/instances.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "base/host_name.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

// How well a mount fits a command of this job that names none.
enum class Fit { nothing_is_there, left, runs_for_others, runs };

template <typename Record>
Fit fit_of(const Record& record, bool runs) {
    const bool is_own = record.batch_job.empty() || is_within_job(batch_job_id(), record.batch_job);
    return !runs ? Fit::left : is_own ? Fit::runs : Fit::runs_for_others;
}

// "job 17", "an earlier run of job 17".
std::string owner_of(const InstanceRecord& record) {
    return (whose(record) == Whose::earlier_runs ? "an earlier run of job " : "job ") + record.batch_job;
}

bool is_nowhere_above_zero(std::initializer_list<const char*> variables) {
    return std::ranges::all_of(variables, [](const char* variable) {
        const char* number = std::getenv(variable);
        return number == nullptr || std::string_view(number) == "0";
    });
}

// Launchers tell each process its number in the step.
bool is_first_of_step() {
    return is_nowhere_above_zero(
        {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK"});
}

Fit fit_of(const std::string& mount) {
    auto best = Fit::nothing_is_there;
    for (const auto& [directory, record] : instances_named(mount, ::getuid())) {
        best = std::max(best, fit_of(record, is_running(record)));
    }
    if (const auto launch = read_launch(mount)) {
        best = std::max(best, fit_of(*launch, is_running(launch->process)));
    }
    return best;
}

// Usually the default. If another user has that on some node, `copper launch` has chosen another one.
std::string mount_of_job() {
    auto chosen = canonical_mount(default_mount());
    auto fit = fit_of(chosen);
    for (const auto& directory : private_directories(::getuid())) {
        const auto other = mount_within(directory.path);
        if (const auto fit_of_other = fit_of(other); fit_of_other > fit) {
            chosen = other;
            fit = fit_of_other;
        }
    }
    return chosen;
}

}  // namespace

Result<std::string> mount_named(const std::string& flag) {
    if (!flag.empty()) {
        return canonical_mount(flag);
    }
    const auto sources = read_sources(std::nullopt);
    if (!sources) {
        return misused(sources.error());
    }
    const auto mount = sources->by_name.find("mount");
    const bool given = mount != sources->by_name.end() && !mount->second.texts.empty();
    return given ? canonical_mount(mount->second.texts.back()) : mount_of_job();
}

std::string local_mount(const std::string& mount, std::uint32_t node) {
    return mount + "." + std::to_string(node);
}

std::optional<std::uint32_t> local_node(std::string_view path, std::string_view mount) {
    if (path.size() < mount.size() + 2 || path.substr(0, mount.size()) != mount ||
        path[mount.size()] != '.') {
        return std::nullopt;
    }
    const auto digits = path.substr(mount.size() + 1);
    std::uint32_t node = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), node);
    if (error != std::errc() || end != digits.data() + digits.size()) {
        return std::nullopt;
    }
    return node;
}

std::vector<Found> instances_named(const std::string& mount, uid_t user) {
    std::vector<Found> found;
    for (const auto& directory : find_instances(user)) {
        auto record = read_instance(directory);
        if (record && (record->mount == mount || local_node(record->mount, mount))) {
            found.push_back({directory, std::move(*record)});
        }
    }
    std::sort(found.begin(), found.end(), [&](const Found& a, const Found& b) {
        return local_node(a.record.mount, mount) < local_node(b.record.mount, mount);
    });
    return found;
}

Whose whose(const InstanceRecord& record) {
    const auto own = batch_job_id();
    if (own.empty() || record.batch_job.empty()) {
        return Whose::unknown;
    }
    return !is_within_job(own, record.batch_job)               ? Whose::other_jobs
           : is_earlier_run(record.batch_run, batch_job_run()) ? Whose::earlier_runs
                                                               : Whose::own;
}

std::vector<Found> instances_of_job(const std::string& mount) {
    auto found = instances_named(mount, ::getuid());
    auto best = Whose::other_jobs;
    for (const auto& instance : found) {
        best = std::max(best, whose(instance.record));
    }
    std::erase_if(found, [&](const Found& instance) { return whose(instance.record) != best; });
    return found;
}

Result<void> check_job(const InstanceRecord& record) {
    if (whose(record) >= Whose::unknown) {
        return {};
    }
    return failed(record.mount + " is the mirror of " + owner_of(record) + ", not of this job (" +
                  batch_job_id() +
                  "), and its files may be older: launch one for this job. 'copper launch' ends that of a "
                  "job that is over, and otherwise says what to do");
}

void warn_of_other_job(const std::string& mount) {
    for (const auto& [directory, record] : instances_of_job(mount)) {
        if (whose(record) < Whose::unknown) {
            say("warning: " + record.mount + " is the mirror of " + owner_of(record) + ", not of this job (" +
                batch_job_id() + ")");
            return;
        }
    }
}

void tell_if_unknown(const InstanceRecord& record) {
    const auto own = batch_job_id();
    if (own.empty() == record.batch_job.empty() || !is_first_of_step()) {
        return;
    }
    say(own.empty() ? record.mount + " is the mirror of job " + record.batch_job +
                          ", and this process is in no job, as far as its environment tells"
                    : "warning: " + record.mount +
                          " belongs to no batch job, so its files may be older than this job (" + own + ")");
}

bool is_first_of_node() {
    return is_nowhere_above_zero({"SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                  "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"});
}

tl::unexpected<Failure> no_mirror_here(const std::string& mount, const Needy& command) {
    return failed(mount +
                  ": the job goes on without a mirror on this node (--allow-missing), where only 'copper "
                  "run' works: use 'copper " +
                  command.name + "' on another one");
}

tl::unexpected<Failure> no_daemon_here(const std::string& mount, const Needy& command) {
    const auto launch = read_launch(mount);
    const auto record = read_instance(instance_directory(::getuid(), mount));
    const bool without_mirror = record && record->without_mirror;
    if (!launch && without_mirror) {
        return no_mirror_here(mount, command);
    }
    if (!launch) {
        return failed("no Copper serves " + mount + " on this node (start one with 'copper launch')");
    }
    const auto hosts = without_mirror ? hosts_without(launch->hosts, {host_name()}) : launch->hosts;
    if (hosts_without({host_name()}, hosts).empty() || hosts.empty()) {
        return failed(
            "the daemon of " + mount + " on this node " +
            (is_running(launch->process) && !record
                 ? "does not serve yet, or is gone: 'copper launch' tells when all serve; if it has "
                   "ended, clean up with "
                 : "is gone: clean up with ") +
            stop_command(mount));
    }
    const std::string names = some_of(hosts);
    if (!is_running(launch->process)) {
        return failed(mount + " served " + names + ", but its launcher has ended (clean up with " +
                      stop_command(mount) + ")");
    }
    const auto launcher = launcher_from_here(*launch);
    const auto reach = reach_of(launcher, !batch_job_id().empty());
    const bool launcher_knows_hosts = !launch->batch_job.empty() && reach != Reach::hosts;
    const auto start = command.on_every_node
                           ? start_on_all(launcher, launcher_knows_hosts ? std::vector<std::string>() : hosts)
                           : start_on_one(launcher, hosts.front());
    return failed(mount + " serves " + names + ", not this node: use '" + shell_quote(start) + " copper " +
                  command.name + mount_flag(mount) + (command.arguments.empty() ? "" : " ") +
                  command.arguments + "'" +
                  (reach == Reach::nothing ? " in a shell of job " + launch->batch_job : ""));
}

}  // namespace copper::cli
