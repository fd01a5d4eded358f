#include "tools/copper/nodes/ask_job.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "tools/copper/common/table.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

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

Result<ControlReply> ask_job(const std::string& mount, const std::vector<Found>& found,
                             const ControlRequest& request, const std::string& command) {
    if (std::ranges::all_of(found, [](const Found& each) { return each.record.without_mirror; })) {
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

}  // namespace copper::cli
