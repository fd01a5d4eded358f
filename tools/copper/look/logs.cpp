#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "base/host_name.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/nodes/ready.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

constexpr std::string_view log_suffix = "-output.log";
constexpr std::chrono::milliseconds follow_interval{500};

struct LogsOptions {
    std::string mount;
    std::string directory;
    std::string node;
    bool follow = false;
    bool local = false;
};

// The reports of rank 0 to `copper launch` are among the lines of the launcher's output.
std::string in_words(const std::string& line) {
    const auto report = parse_readiness(line);
    if (!report) {
        return line;
    }
    auto text = std::to_string(report->ready) + " of " + std::to_string(report->nodes) + " nodes ready";
    for (const auto& node : report->failed) {
        text += "; " + node.host + ": " + node.reason;
    }
    return text;
}

// The daemons' log files in a directory, or the launcher's output, and how much of them has been read.
class Logs {
  public:
    Logs(std::string place, std::string node) : place_(std::move(place)), node_(std::move(node)) {}

    bool are_together() const {
        std::error_code error;
        return std::filesystem::is_regular_file(place_, error);
    }

    struct Line {
        std::string time;  // a line that continues another one has its time
        std::string text;  // "host: ..."
    };
    // The lines that are new since the last call, of all files, in the order of time.
    std::vector<Line> read_on() {
        std::vector<Line> lines;
        for (const auto& [path, host] : files()) {
            read_on(path, host, lines);
        }
        std::stable_sort(lines.begin(), lines.end(),
                         [](const Line& a, const Line& b) { return a.time < b.time; });
        return lines;
    }
    std::vector<std::string> hosts() const {
        std::vector<std::string> found;
        for (const auto& [path, host] : files()) {
            found.push_back(host);
        }
        return found;
    }

  private:
    // And their hosts. The lines of the launcher's output do not say theirs.
    std::vector<std::pair<std::string, std::string>> files() const {
        if (are_together()) {
            return {{place_, ""}};
        }
        std::vector<std::pair<std::string, std::string>> found;
        std::error_code error;
        for (const auto& file : std::filesystem::directory_iterator(place_, error)) {
            if (const auto host = host_of(file.path().filename())) {
                found.emplace_back(file.path(), *host);
            }
        }
        return found;
    }
    // HOST-PID-output.log
    std::optional<std::string> host_of(const std::string& name) const {
        if (!name.ends_with(log_suffix)) {
            return std::nullopt;
        }
        const auto end = name.rfind('-', name.size() - log_suffix.size() - 1);
        const auto host = name.substr(0, end);
        const bool wanted = node_.empty() || hosts_without({node_}, {host}).empty();
        return end != std::string::npos && wanted ? std::optional(host) : std::nullopt;
    }
    void read_on(const std::string& path, const std::string& host, std::vector<Line>& lines) {
        constexpr std::size_t time_length = std::string_view("2026-01-01T00:00:00.000").size();
        auto& offset = read_[path];
        std::ifstream file(path);
        file.seekg(offset);
        std::string time;
        for (std::string line; std::getline(file, line) && !file.eof(); offset = file.tellg()) {
            time = line.size() > time_length && line[4] == '-' ? line.substr(0, time_length) : time;
            lines.push_back({time, host.empty() ? in_words(line) : host + ": " + line});
        }
    }

    const std::string place_;
    const std::string node_;
    std::map<std::string, std::streamoff> read_;
};

void print(const std::vector<Logs::Line>& lines) {
    for (const auto& line : lines) {
        std::cout << line.text << "\n";
    }
    std::cout.flush();
}

// Of the job's nodes whose logs are not in the directory on this node: it is on their own disks.
std::vector<std::string> other_hosts(const LogsOptions& options, const std::string& mount,
                                     const std::vector<std::string>& have) {
    if (options.local || !options.directory.empty()) {
        return {};
    }
    auto hosts = hosts_without(launched_hosts(mount), have);
    if (!options.node.empty()) {
        std::erase_if(
            hosts, [&](const std::string& host) { return !hosts_without({options.node}, {host}).empty(); });
    }
    return hosts_without(hosts, {host_name()});
}

// Through the launcher of the job.
std::vector<Logs::Line> lines_from(const std::vector<std::string>& hosts, const std::string& mount) {
    std::vector<Logs::Line> lines;
    const auto launch = read_launch(mount);
    if (hosts.empty() || !launch) {
        return lines;
    }
    std::istringstream text(
        said_by_all(launch->launcher, hosts, {own_program(), "logs", "--local", "--mount", mount}));
    for (std::string line; std::getline(text, line);) {
        const auto time = line.find(": ");
        lines.push_back({time == std::string::npos ? "" : line.substr(time + 2, 23), line});
    }
    return lines;
}

// False if neither the launcher nor a daemon runs on this node any more.
bool goes_on(const std::string& mount) {
    const auto launch = read_launch(mount);
    return !instances_named(mount, ::getuid()).empty() || (launch && is_running(launch->process));
}

// Where the daemons write: a directory, or the launcher's output on the node of the launch.
Result<std::string> log_place(const std::string& mount, const std::string& node) {
    const auto found = instances_named(mount, ::getuid());
    const auto launch = read_launch(mount);
    if (found.empty() && !launch) {
        return no_daemon_here(mount, {.name = "logs"});
    }
    const auto& directory = found.empty() ? launch->log_dir : found.front().record.log_dir;
    if (!directory.empty()) {
        return directory;
    }
    const auto output = launch_files(mount).log;
    if (!node.empty() || !std::filesystem::exists(output)) {
        return failed("the daemons of " + mount + " were launched without --log-dir: all of them write to " +
                      output + " on the node of the launch; 'copper logs' there shows it");
    }
    return output;
}

Result<void> show_logs(const LogsOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto place =
        options.directory.empty() ? log_place(*mount, options.node) : Result<std::string>(options.directory);
    if (!place) {
        return tl::make_unexpected(place.error());
    }
    Logs logs(*place, options.local ? host_name() : options.node);
    const auto elsewhere =
        logs.are_together() ? std::vector<std::string>() : other_hosts(options, *mount, logs.hosts());
    auto lines = logs.read_on();
    const auto more = lines_from(options.follow ? std::vector<std::string>() : elsewhere, *mount);
    lines.insert(lines.end(), more.begin(), more.end());
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Logs::Line& a, const Logs::Line& b) { return a.time < b.time; });
    print(lines);
    if (lines.empty() && !options.follow && !options.local) {
        return failed("no log" + (options.node.empty() ? "" : " of " + options.node) + " in " + *place);
    }
    if (options.follow && !elsewhere.empty()) {
        say("not followed, on disks of their own: " + joined(elsewhere, ","));
    }
    while (options.follow && goes_on(*mount)) {
        std::this_thread::sleep_for(follow_interval);
        print(logs.read_on());
    }
    return {};
}

}  // namespace

void add_logs(CLI::App& app, Action& action) {
    auto options = std::make_shared<LogsOptions>();
    auto* command = app.add_subcommand("logs", "Show the logs of the job's daemons in one stream, by time");
    auto* mount = add_mount_option(*command, options->mount);
    command
        ->add_option("directory", options->directory,
                     "Of a job that has ended: its --log-dir. Default: the running job")
        ->type_name("DIR")
        ->excludes(mount);
    command->add_option("--node", options->node, "Of this node only")->type_name("HOST");
    command->add_flag("-f,--follow", options->follow, "Go on until the job is stopped");
    command->add_flag("--local", options->local)->group("");
    command->footer(
        "Examples:\n  copper logs\n  copper logs --node cn12 --follow\n  copper logs ~/copper-logs/1234");
    command->callback([options, &action] { action = [options] { return show_logs(*options); }; });
}

}  // namespace copper::cli
