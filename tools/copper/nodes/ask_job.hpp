// Asks the daemons of a job through those on this node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/control/control.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/nodes/instances.hpp"

namespace copper::cli {

// Asks the job of `mount` through any of its daemons on this node (`found`) that answers. Asks successors
// directly.
// `command`: what the user shall type on one of the job's nodes, if this is none.
Result<ControlReply> ask_job(const std::string& mount, const std::vector<Found>& found,
                             const ControlRequest& request, const std::string& command);

// The replies of all nodes by rank. A node without a reply gets {rank, host, state: "lost", why}. Its host is
// "" unless a daemon or `hosts` knows it.
std::vector<nlohmann::json> per_node(const ControlReply& reply, const std::vector<std::string>& hosts = {});

// What per_node() has of a node without a reply.
nlohmann::json lost_node(const ControlReply& reply, std::uint32_t rank, const std::string& host);

}  // namespace copper::cli
