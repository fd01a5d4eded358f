#include "tools/copper/instances.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/host_name.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/private_directory.hpp"
#include "tools/copper/launch_record.hpp"
#include "tools/copper/node_list.hpp"

namespace copper::cli {

namespace {

// How well a mount fits a command of this job that names none.
enum class Fit { nothing_is_there, left, runs_for_others, runs };

template <typename Record>
Fit fit_of(const Record& record, bool runs) {
    const bool is_own = record.batch_job.empty() || record.batch_job == batch_job_id();
    return !runs ? Fit::left : is_own ? Fit::runs : Fit::runs_for_others;
}

Fit fit_of(const std::string& mount) {
    auto best = Fit::nothing_is_there;
    for (const auto& [directory, record] : instances_named(mount, ::getuid())) {
        best = std::max(best, fit_of(record, is_running(record)));
    }
    if (const auto launch = read_launch(mount)) {
        best = std::max(best, fit_of(*launch, is_running(launch->process.pid, launch->process.started)));
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

Result<void> check_job(const InstanceRecord& record) {
    const auto own = batch_job_id();
    if (!are_different_jobs(own, record.batch_job)) {
        return {};
    }
    return failed(record.mount + " is the mirror of job " + record.batch_job + ", not of this job (" + own +
                  "), and its files may be older: launch one for this job. 'copper launch' ends that of a "
                  "job that is over, and otherwise says what to do");
}

void warn_of_other_job(const std::string& mount) {
    const auto own = batch_job_id();
    for (const auto& [directory, record] : instances_named(mount, ::getuid())) {
        if (are_different_jobs(own, record.batch_job)) {
            say("warning: " + record.mount + " is the mirror of job " + record.batch_job +
                ", not of this job (" + own + ")");
            return;
        }
    }
}

tl::unexpected<Failure> no_daemon_here(const std::string& mount, const Needy& command) {
    const auto launch = read_launch(mount);
    if (!launch) {
        return failed("no Copper serves " + mount + " on this node (start one with 'copper launch')");
    }
    const auto& hosts = launch->hosts;
    if (hosts_without({host_name()}, hosts).empty() || hosts.empty()) {
        return failed("the daemon of " + mount + " on this node is gone (clean up with " +
                      stop_command(mount) + ")");
    }
    const std::string names = some_of(hosts);
    if (!is_running(launch->process.pid, launch->process.started)) {
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
