// What a job did, from its nodes' answers, as text and as JSON.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/control/control.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/nodes/instances.hpp"

namespace copper::cli {

struct JobStatistics {
    std::string job;
    std::string mount;
    std::size_t nodes = 0;                  // of the job
    nlohmann::json sum;                     // of those that answered (daemon/control/sum.hpp)
    std::size_t top_paths = 0;              // how many of the most requested paths to report
    std::vector<nlohmann::json> lost = {};  // lost_node() of those that did not answer
};

inline constexpr std::chrono::milliseconds usual_patience{10000};
inline constexpr std::size_t reported_paths = 50;  // of `copper report`

// Asks the job for its sum: a few kilobytes from any number of nodes. `found`, `command`: as for ask_job().
Result<JobStatistics> ask_sum(const std::string& mount, const std::vector<Found>& found,
                              std::size_t top_paths, const std::string& command,
                              std::chrono::milliseconds patience = usual_patience);
// From the answers of a job to verb::sum. `hosts`: by rank, as far as the launch knows them. Pure.
JobStatistics statistics_of(const ControlReply& reply, const std::vector<std::string>& hosts,
                            const std::string& mount, std::size_t top_paths);

// All nodes, by rank; lost ones, too (per_node() of ask_job.hpp).
struct EachNode {
    std::string job;
    std::vector<nlohmann::json> nodes;
};
Result<EachNode> ask_each_node(const std::string& mount, const std::vector<Found>& found,
                               std::size_t top_paths, std::chrono::milliseconds patience = usual_patience);
// Their sum. Pure.
JobStatistics statistics_of(const EachNode& each, const std::string& mount, std::size_t top_paths);

bool is_lost(const nlohmann::json& node);

// Schema 1: its keys are stable; more may be added. `sum`, if there is one, adds what happened when, the
// conspicuous nodes and the paths.
nlohmann::json statistics_json(const EachNode& each, const JobStatistics& job,
                               const nlohmann::json& sum = {});

// A node's own statistics have over a kilobyte: more of them would come through one node and through the
// user's home for a file that nobody reads to its end. The sum names the nodes that are worth a look.
inline constexpr std::size_t nodes_kept_max = 1000;
// What `copper stop` keeps, for `copper report`: statistics_json() with the sum, and with each node's own
// statistics up to nodes_kept_max nodes. Otherwise, "per_node" has the lost nodes, and "per_node_missing"
// says why.
nlohmann::json statistics_to_keep(const JobStatistics& job,
                                  const std::function<Result<EachNode>()>& ask_each);

// How many of a group's counter ("fuse", "requests") the nodes counted together.
std::uint64_t total(const nlohmann::json& sum, const char* group, const char* name);
// Calls on the filesystem.
std::uint64_t operations_of(const nlohmann::json& sum);
// " (9 times fewer)"; empty below 2 times.
std::string times_fewer(std::uint64_t wanted, std::uint64_t made);

// Six lines that say what Copper saved; or a table of all totals. Then one of the paths, if asked for.
std::string statistics_summary(const JobStatistics& job);
std::string statistics_text(const JobStatistics& job);

}  // namespace copper::cli
