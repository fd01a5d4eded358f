// The control protocol: how tools talk to the daemon of this node, and through it to the whole job.
//
// It uses a Unix stream socket in the instance's directory (instance.hpp). The client sends one
// ControlRequest as a line of JSON. The daemon answers with one ControlReply as a line of JSON and closes. It
// serves only its own user and root (SO_PEERCRED, unix(7)).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <tl/expected.hpp>

namespace copper {

inline constexpr std::size_t control_request_bytes_max = 64U << 10;
inline constexpr std::size_t control_reply_bytes_max = 256U << 20;
inline constexpr std::uint32_t control_nodes_max = 1U << 20;
inline constexpr std::size_t refreshed_paths_max = 64;  // by one request

// Verbs. Every node answers with one JSON object.
namespace verb {
inline constexpr const char* status =
    "status";  // {host, state, mount, uptime_seconds, reader: bool, pid, trees: [...]}
inline constexpr const char* stats =
    "stats";  // {host, state, <the groups of metrics.hpp>}; with a number N as argument, also the N top_paths
inline constexpr const char* sum = "sum";  // one part for all nodes: sum_of() in sum.hpp, and "lost", the
                                           // ranks that did not answer. Argument: how many paths
inline constexpr const char* prefetch =
    "prefetch";  // only the asked node answers: Prefetch::progress(). Argument: a path to add, or nothing
inline constexpr const char* refresh =
    "refresh";  // {host, error: what prevents it, or ""}: programs of this node see these paths anew.
                // Argument: a JSON array of absolute paths; the root is everything
inline constexpr const char* keep_view =
    "keep_view";  // only the asked node answers: {}. Argument: a process whose namespaces are the node's view
                  // from now on (view.hpp)
inline constexpr const char* no_view =
    "no_view";  // only the asked node answers: {}. Argument: why this node can have no view
inline constexpr const char* stop =
    "stop";  // {host, unmounted: bool, reason}: the node has unmounted and will end
}  // namespace verb

struct ControlRequest {
    std::string verb;
    std::string argument = {};
    std::chrono::milliseconds patience{10000};  // for the answers of other nodes
};

struct ControlReply {
    struct Part {
        std::uint32_t rank = 0;
        nlohmann::json body;
    };
    std::string job;
    std::uint32_t nodes = 0;                           // of the job; parts.size() of them answered
    std::vector<Part> parts = {};                      // by rank
    std::map<std::uint32_t, std::string> silent = {};  // the other nodes' hosts by rank, if known
    std::string error = {};                            // set if the daemon refused the request
};

std::string to_line(const ControlRequest& request);
std::string to_line(const ControlReply& reply);
tl::expected<ControlRequest, std::string> parse_request(std::string_view line);
tl::expected<ControlReply, std::string> parse_reply(std::string_view line);

// The client side. Blocks. Errors are for people.
tl::expected<ControlReply, std::string> ask(const std::string& socket_path, const ControlRequest& request);

}  // namespace copper
