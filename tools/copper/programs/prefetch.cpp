#include "tools/copper/programs/prefetch.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <set>
#include <system_error>
#include <thread>

#include "base/error_text.hpp"
#include "base/processes.hpp"
#include "daemon/control/control.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/programs/environment.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds look_every{200};  // what a progress bar shows
constexpr std::size_t bar_columns = 20;
constexpr std::size_t usual_columns = 80;
constexpr const char* clear_line = "\r\033[K";

struct PrefetchOptions {
    std::string mount;
    std::vector<std::string> paths;
    bool wait = false;
};

// One node fetches for all: the first of this machine that belongs to the job.
Result<json> ask_first_node(const std::string& mount, const std::string& path) {
    const auto found = instances_of_job(mount);
    if (found.empty()) {
        return no_daemon_here(mount, {.name = "prefetch", .arguments = "..."});
    }
    std::string reason;
    for (const auto& instance : found) {
        if (auto checked = check_job(instance.record); !checked) {
            return tl::make_unexpected(std::move(checked.error()));
        }
        if (instance.record.is_alone || !is_running(instance.record.pid, instance.record.pid_started)) {
            reason = instance.record.mount + ": its daemon was lost, and this node reads alone";
            continue;
        }
        const auto reply = ask(instance.directory + "/control", {.verb = verb::prefetch, .argument = path});
        if (reply && reply->error.empty() && reply->parts.size() == 1) {
            return reply->parts.front().body;
        }
        return failed(reply ? reply->error : instance.record.mount + ": " + reply.error());
    }
    return failed(reason);
}

Result<std::string> real_path(const std::string& mount, const std::string& text) {
    const auto resolved = resolve_path(text);
    if (!resolved) {
        return failed(text + ": no such path");
    }
    for (const auto& instance : instances_named(mount, ::getuid())) {
        if (auto outside = out_of_mirror(instance.record.mount, *resolved)) {
            return std::move(*outside);
        }
    }
    return *resolved;
}

std::string bytes_of(const json& one) {
    return in_units(one.value("bytes", std::uint64_t{0}));
}

// " in 2.1 s (480 MiB/s)"; nothing of what took no time.
std::string pace_of(const json& one) {
    const auto seconds = one.value("seconds", 0.0);
    const auto bytes = static_cast<double>(one.value("bytes", std::uint64_t{0}));
    constexpr double worth_telling = 0.05;
    if (seconds < worth_telling) {
        return "";
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), " in %.1f s", seconds);
    return text.data() + (" (" + in_units(static_cast<std::uint64_t>(bytes / seconds)) + "/s)");
}

std::size_t terminal_columns() {
    winsize size = {};
    const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
    return is_known ? size.ws_col : usual_columns;
}

void show(const json& progress) {
    std::cerr << clear_line << progress_line(progress, terminal_columns()) << std::flush;
}

// What was fetched, and what was not and why.
Result<void> report(const json& progress) {
    std::string problems;
    for (const auto& one : progress.value("paths", json::array())) {
        const auto path = one.value("path", "");
        const auto failures = one.value("failed", std::uint64_t{0});
        std::cout << path << ": " << text_of(one, "fetched") << " objects, " << bytes_of(one) << pace_of(one)
                  << "\n";
        if (failures != 0) {
            problems += "\n  " + path + ": " + std::to_string(failures) + " objects could not be read (" +
                        error_text(one.value("error", 0)) + ")";
        }
        if (one.value("state", "").starts_with("stopped")) {
            problems += "\n  " + path + ": the cache has room for " + bytes_of(one) +
                        " of it; the rest is read when programs ask (launch with a larger --cache-bytes)";
        }
    }
    return problems.empty() ? Result<void>() : failed("not everything was fetched:" + problems);
}

// Of these paths alone, each as it was asked for last. A node that answers in the place of a lost one knows
// none. {paths: [...]}
json only(const std::vector<std::string>& paths, const json& progress) {
    std::map<std::string, json> latest;
    for (const auto& one : progress.value("paths", json::array())) {
        latest[one.value("path", "")] = one;
    }
    json own = json::array();
    for (const auto& path : paths) {
        if (const auto found = latest.find(path); found != latest.end()) {
            own.push_back(found->second);
        }
    }
    return {{"paths", own}};
}

// A program that waits says for what.
void tell_silent(const json& progress, std::set<std::string>& told) {
    for (const auto& one : progress["paths"]) {
        const auto seconds = one.value("silent_seconds", std::uint64_t{0});
        const auto path = one.value("path", "");
        if (seconds == 0 || one.value("done", false)) {
            told.erase(path);
        } else if (told.insert(path).second) {
            std::cerr << "copper: " << path << ": its filesystem has not answered for " << seconds << " s"
                      << std::endl;
        }
    }
}

Result<void> wait_for(const std::vector<std::string>& paths, const std::string& mount) {
    const bool has_terminal = ::isatty(STDERR_FILENO) != 0;
    std::set<std::string> told;
    for (;;) {
        const auto asked = ask_first_node(mount, "");
        if (!asked) {
            return tl::make_unexpected(asked.error());
        }
        const json progress = only(paths, *asked);
        if (has_terminal) {
            show(progress);
        }
        tell_silent(progress, told);
        const auto is_done = [](const json& one) { return one.value("done", false); };
        if (std::ranges::all_of(progress["paths"], is_done)) {
            if (has_terminal) {
                std::cerr << clear_line;
            }
            return report(progress);
        }
        std::this_thread::sleep_for(look_every);
    }
}

// Returns when the job knows of all paths. A path can be given as it is, or under the mount.
Result<std::vector<std::string>> ask_for(const std::string& mount, const std::vector<std::string>& texts) {
    std::vector<std::string> paths;
    for (const auto& text : texts) {
        const auto path = real_path(mount, text);
        if (!path) {
            return tl::make_unexpected(path.error());
        }
        if (const auto asked = ask_first_node(mount, *path); !asked) {
            return tl::make_unexpected(asked.error());
        }
        paths.push_back(*path);
    }
    return paths;
}

Result<void> run(const PrefetchOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto paths = ask_for(*mount, options.paths);
    if (!paths) {
        return tl::make_unexpected(paths.error());
    }
    return options.wait ? wait_for(*paths, *mount) : Result<void>();
}

}  // namespace

std::string progress_line(const json& progress, std::size_t columns) {
    for (const auto& one : progress.value("paths", json::array())) {
        if (one.value("state", "") != "running") {
            continue;
        }
        const auto fetched = one.value("fetched", std::uint64_t{0}) + one.value("failed", std::uint64_t{0});
        const auto known = fetched + one.value("left", std::uint64_t{0});
        const auto full = static_cast<std::size_t>(bar_columns * fetched / std::max<std::uint64_t>(known, 1));
        const std::string line = "[" + std::string(full, '#') + std::string(bar_columns - full, '-') + "] " +
                                 std::to_string(fetched) + " of at least " + std::to_string(known) +
                                 " objects, " + bytes_of(one) + pace_of(one);
        const std::string with_path = line + "  " + one.value("path", "");
        return (with_path.size() < columns ? with_path : line).substr(0, columns - 1);
    }
    return "";
}

void add_prefetch(CLI::App& app, Action& action) {
    auto options = std::make_shared<PrefetchOptions>();
    auto* command =
        app.add_subcommand("prefetch", "Read directories or files ahead, and send them to all nodes");
    add_mount_option(*command, options->mount);
    command->add_flag("--wait", options->wait, "Return when everything is there, and say how much that is");
    command->add_option("PATH", options->paths, "What to read, with everything below it")->required();
    command->footer(
        "Examples:\n"
        "  copper prefetch /lustre/sw/conda/lib/python3.11\n"
        "  copper prefetch --wait /lustre/models/weights.bin");
    command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace copper::cli
