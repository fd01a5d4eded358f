#include "tools/copper/nodes/other_nodes.hpp"

#include "base/host_name.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

std::vector<std::string> silent_hosts(const LaunchRecord& launch, const std::optional<ControlReply>& reply) {
    std::vector<std::string> heard = {host_name()};
    for (const auto& part : reply ? reply->parts : std::vector<ControlReply::Part>()) {
        heard.push_back(text_of(part.body, "host"));
    }
    auto silent = hosts_without(launch.hosts, heard);
    for (const auto& node : launch.left_out) {
        if (node.answers) {
            silent.push_back(node.host);
        }
    }
    return hosts_without(silent, {host_name()});
}

}  // namespace

std::vector<Trouble> run_on_silent_nodes(const std::vector<std::string>& command,
                                         const std::optional<LaunchRecord>& launch,
                                         const std::vector<Found>& found,
                                         const std::optional<ControlReply>& reply) {
    if (launch) {
        return run_on_hosts(launcher_from_here(*launch), silent_hosts(*launch, reply), command);
    }
    if (found.empty() || found.front().record.run_everywhere.empty()) {
        return {};
    }
    auto everywhere = found.front().record.run_everywhere;
    everywhere.insert(everywhere.end(), command.begin(), command.end());
    const auto output = capture(everywhere, hosts_patience, variables_of_application());
    const bool done = output && succeeded(*output) &&
                      lines_behind(done_prefix, output->text).size() >= found.front().record.nodes;
    return done ? std::vector<Trouble>() : std::vector<Trouble>{{.host = "all other nodes"}};
}

}  // namespace copper::cli
