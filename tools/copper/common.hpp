// Shared by all commands of the CLI: how they fail, and how they find and ask the running instance.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <tl/expected.hpp>

#include "daemon/control/control.hpp"
#include "daemon/control/instance.hpp"

namespace CLI {
class App;
}

namespace copper::cli {

// The first line on standard error gives the reason.
enum ExitCode : int { exit_done = 0, exit_failed = 1, exit_usage = 2, exit_prerequisite = 3 };

// Of commands that start the user's command, as in shells.
constexpr int exit_cannot_start = 126;
constexpr int exit_not_found = 127;

struct Failure {
    int exit_code = exit_failed;
    std::string reason;  // may have further lines; the first one must say everything. Empty: said already
};

template <typename T>
using Result = tl::expected<T, Failure>;

tl::unexpected<Failure> failed(std::string reason);
tl::unexpected<Failure> misused(std::string reason);
tl::unexpected<Failure> lacking(std::string reason);
tl::unexpected<Failure> not_found(const std::string& command);

// Prints "copper: <text>" on standard error.
void say(const std::string& text);

// main() runs this after parsing the command line.
using Action = std::function<Result<void>()>;

// One function per command. It adds the command's options to `app`, and sets `action` if the user chose the
// command.
void add_launch(CLI::App& app, Action& action);
void add_stop(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_stats(CLI::App& app, Action& action);
void add_top(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_logs(CLI::App& app, Action& action);
void add_path(CLI::App& app, Action& action);
void add_env(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_prefetch(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);

// --mount as given; otherwise from the environment or the configuration file; otherwise /tmp/$USER/copper.
// Canonical.
Result<std::string> mount_named(const std::string& flag);

// The mount of node `node` of a job on this machine (--local N).
std::string local_mount(const std::string& mount, std::uint32_t node);

// N if `path` is `mount`.N; nothing for another path.
std::optional<std::uint32_t> local_node(std::string_view path, std::string_view mount);

// An instance of this user on this node.
struct Found {
    std::string directory;
    InstanceRecord record;
};
// The instances that `mount` names: DIR itself, or DIR.0, DIR.1, ... in this order.
std::vector<Found> instances_named(const std::string& mount, uid_t user);

// A command of the user that works only where a daemon is.
struct Needy {
    std::string name;            // "run"
    std::string arguments = {};  // "-- ..."
    bool on_every_node = false;  // or on one, which asks the others
};
// The failure where there is no daemon of `mount`. If the job was launched from this node, it says where the
// daemons are and how to run `command` there.
tl::unexpected<Failure> no_daemon_here(const std::string& mount, const Needy& command);

// Asks the job of `mount` through any daemon of it on this node that answers. Asks successors on this node
// directly.
// `command`: what the user shall type on one of the job's nodes, if this is none.
Result<ControlReply> ask_job(const std::string& mount, const ControlRequest& request,
                             const std::string& command);

// The hosts of `mount`'s job by rank, if it was launched from this node to others.
std::vector<std::string> launched_hosts(const std::string& mount);

// The replies of all nodes by rank. A node without a reply gets {rank, host, state: "lost", why}. Its host is
// "" unless a daemon or `hosts` knows it.
std::vector<nlohmann::json> per_node(const ControlReply& reply, const std::vector<std::string>& hosts = {});

// What per_node() has of a node without a reply.
nlohmann::json lost_node(const ControlReply& reply, std::uint32_t rank, const std::string& host);

// A field of a node's answer as text for a table; "-" if it is missing.
std::string text_of(const nlohmann::json& body, const char* key);

// "1.5 GiB".
std::string in_units(std::uint64_t bytes);

// Rows as aligned columns. The first row is the head.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace copper::cli
