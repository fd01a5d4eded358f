#include "tools/copper/common.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <set>
#include <sstream>

#include "base/host_name.hpp"
#include "base/shell_quote.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/options.hpp"
#include "tools/copper/launch_record.hpp"
#include "tools/copper/node_list.hpp"
#include "tools/copper/words.hpp"

namespace copper::cli {

tl::unexpected<Failure> failed(std::string reason) {
    return tl::make_unexpected(Failure{exit_failed, std::move(reason)});
}
tl::unexpected<Failure> misused(std::string reason) {
    return tl::make_unexpected(Failure{exit_usage, std::move(reason)});
}
tl::unexpected<Failure> lacking(std::string reason) {
    return tl::make_unexpected(Failure{exit_prerequisite, std::move(reason)});
}

tl::unexpected<Failure> not_found(const std::string& command) {
    return tl::make_unexpected(Failure{exit_not_found, command + ": not found, or not executable"});
}

void say(const std::string& text) {
    std::cerr << "copper: " << text << std::endl;
}

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
    return canonical_mount(given ? mount->second.texts.back() : default_mount());
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

Result<ControlReply> ask_job(const std::string& mount, const ControlRequest& request,
                             const std::string& command) {
    const auto found = instances_named(mount, ::getuid());
    if (found.empty()) {
        return no_daemon_here(mount, {.name = command});
    }
    std::string reasons;
    std::optional<ControlReply> all;
    bool job_has_answered = false;
    for (const auto& instance : found) {
        if (job_has_answered && !instance.record.is_alone) {
            continue;  // already asked with the others
        }
        if (!is_running(instance.record.pid, instance.record.pid_started)) {
            reasons += "\n  " + instance.record.mount + ": its daemon is gone";
            continue;
        }
        auto reply = ask(instance.directory + "/control", request);
        if (reply && reply->error.empty()) {
            job_has_answered = job_has_answered || !instance.record.is_alone;
            if (all) {
                all->parts.insert(all->parts.end(), reply->parts.begin(), reply->parts.end());
            } else {
                all = std::move(*reply);
            }
            continue;
        }
        reasons += "\n  " + instance.record.mount + ": " + (reply ? reply->error : reply.error());
    }
    if (all) {
        return std::move(*all);
    }
    return failed("no daemon of " + mount + " answers on this node (clean up with " + stop_command(mount) +
                  ")" + reasons);
}

namespace {

// The reason that a node gave the others when it left.
std::string why_departed(const ControlReply& reply, std::uint32_t rank) {
    for (const auto& part : reply.parts) {
        const auto departed = part.body.find("departed");
        if (departed != part.body.end() && departed->is_object()) {
            const auto why = departed->find(std::to_string(rank));
            if (why != departed->end() && why->is_string()) {
                return why->get<std::string>();
            }
        }
    }
    return "it does not answer";
}

}  // namespace

std::vector<std::string> launched_hosts(const std::string& mount) {
    const auto launch = read_launch(mount);
    return launch ? launch->hosts : std::vector<std::string>();
}

std::vector<nlohmann::json> per_node(const ControlReply& reply, const std::vector<std::string>& hosts) {
    std::vector<nlohmann::json> nodes(reply.nodes);
    std::vector<std::string> heard;
    for (const auto& part : reply.parts) {
        if (part.rank < nodes.size() && part.body.is_object()) {
            nodes[part.rank] = part.body;
            heard.push_back(text_of(part.body, "host"));
        }
    }
    // A launcher may have put the ranks in another order: never call a host lost that answers.
    const auto silent = hosts_without(hosts, heard);
    const std::set<std::string> silent_hosts(silent.begin(), silent.end());
    const auto host_of = [&](std::uint32_t rank) {
        if (const auto named = reply.silent.find(rank); named != reply.silent.end()) {
            return named->second;
        }
        return rank < hosts.size() && silent_hosts.contains(hosts[rank]) ? hosts[rank] : std::string();
    };
    for (std::uint32_t rank = 0; rank < nodes.size(); ++rank) {
        auto& node = nodes[rank];
        if (node.is_null()) {
            node = lost_node(reply, rank, host_of(rank));
        }
        node["rank"] = rank;
    }
    return nodes;
}

nlohmann::json lost_node(const ControlReply& reply, std::uint32_t rank, const std::string& host) {
    return {{"rank", rank}, {"host", host}, {"state", "lost"}, {"why", why_departed(reply, rank)}};
}

std::string text_of(const nlohmann::json& body, const char* key) {
    const auto value = body.find(key);
    if (value == body.end() || value->is_null()) {
        return "-";
    }
    if (value->is_string()) {
        return value->get<std::string>().empty() ? "-" : value->get<std::string>();
    }
    if (value->is_boolean()) {
        return value->get<bool>() ? "yes" : "no";
    }
    if (value->is_number_float()) {
        std::ostringstream whole;
        whole << std::fixed << std::setprecision(0) << std::trunc(value->get<double>());
        return whole.str();
    }
    return value->dump();
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string in_units(std::uint64_t number) {
    auto bytes = static_cast<double>(number);
    constexpr double step = 1024;
    constexpr double three_digits_max = 999.5;
    const char* unit = "bytes";
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
        if (bytes < three_digits_max) {
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

}  // namespace copper::cli
