#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>

#include "base/host_name.hpp"
#include "base/path.hpp"
#include "tools/copper/ask_job.hpp"
#include "tools/copper/commands.hpp"
#include "tools/copper/environment.hpp"
#include "tools/copper/mirror.hpp"
#include "tools/copper/node_list.hpp"
#include "tools/copper/other_nodes.hpp"

namespace copper::cli {

namespace {

namespace fs = std::filesystem;

// A node answers when no lookup below the path is under way, and those may wait for a slow filesystem.
constexpr std::chrono::milliseconds patience{60000};
// For what a node does alone, and for the successor of a lost daemon.
constexpr std::chrono::milliseconds patience_here{20000};
constexpr std::chrono::milliseconds look_every{100};

struct RefreshOptions {
    std::string mount;
    std::vector<std::string> paths;
    bool local = false;
    bool tell_host = false;
};

bool is_there(const std::string& path) {
    struct stat found = {};
    return ::lstat(path.c_str(), &found) == 0;
}

bool is_directory(const std::string& path) {
    struct stat found = {};
    return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// The paths that `text` means: its own, which may be a link, and that of the file behind it. Either may be
// new or gone. Nothing can be refreshed in a directory that the mirror does not have: then the first one that
// it does not have is meant.
Result<std::set<std::string>> paths_of(const std::vector<Found>& mirrors, const std::string& text) {
    std::error_code error;
    const fs::path given = fs::absolute(text, error).lexically_normal();
    const fs::path name = given.has_filename() ? given : given.parent_path();  // "dir/"
    std::set<std::string> paths = {
        (fs::weakly_canonical(name.parent_path(), error) / name.filename()).string()};
    if (const auto resolved = resolve_path(text)) {
        paths.insert(*resolved);
    }
    const std::string& mount = mirrors.front().record.mount;
    std::set<std::string> found;
    for (std::string path : paths) {
        for (const auto& mirror : mirrors) {
            path = out_of_mirror(mirror.record.mount, path).value_or(path);
        }
        if (!is_there(path) && !is_there(mount + path)) {
            return failed(text + ": no such path");
        }
        while (path != "/" && !is_directory(mount + std::string(parent_path(path)))) {
            path = parent_path(path);
        }
        found.insert(path);
    }
    return found;
}

Result<std::set<std::string>> all_paths_of(const std::vector<Found>& mirrors, const RefreshOptions& options) {
    std::set<std::string> paths;
    for (const auto& text : options.paths) {
        const auto meant =
            options.local ? Result<std::set<std::string>>(std::set{text}) : paths_of(mirrors, text);
        if (!meant) {
            return tl::make_unexpected(meant.error());
        }
        paths.insert(meant->begin(), meant->end());
    }
    return options.paths.empty() ? std::set<std::string>{"/"} : paths;
}

// Adds the ranks that have done it.
void note_done(const ControlReply& reply, std::set<std::uint32_t>& done) {
    for (const auto& part : reply.parts) {
        if (part.body.is_object() && part.body.contains("error") && part.body["error"] == "") {
            done.insert(part.rank);
        }
    }
}

// On this node, what is not done yet: a successor serves alone, and only a program on its node reaches it.
Result<void> refresh_here(const std::string& mount, ControlRequest request, std::set<std::uint32_t>& done) {
    request.patience = patience_here;
    const auto until = std::chrono::steady_clock::now() + patience_here;
    for (;;) {
        std::string left;
        for (const auto& [directory, record] : instances_of_job(mount)) {
            if (record.without_mirror || done.contains(record.rank)) {
                continue;
            }
            if (const auto reply = ask(directory + "/control", request); reply && reply->error.empty()) {
                note_done(*reply, done);
            }
            if (!done.contains(record.rank)) {
                left = record.mount;
            }
        }
        if (left.empty()) {
            return {};
        }
        if (std::chrono::steady_clock::now() > until) {
            return failed(left + ": its daemon does not answer, so programs may see what was there before");
        }
        std::this_thread::sleep_for(look_every);
    }
}

Result<void> run(const RefreshOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto found = instances_of_job(*mount);
    if (found.empty()) {
        return no_daemon_here(*mount, {.name = "refresh", .arguments = "..."});
    }
    for (const auto& instance : found) {
        if (auto checked = check_job(instance.record); !checked) {
            return checked;
        }
    }
    const auto paths = all_paths_of(found, options);
    if (!paths) {
        return tl::make_unexpected(paths.error());
    }
    const ControlRequest request{
        .verb = verb::refresh, .argument = nlohmann::json(*paths).dump(), .patience = patience};
    std::set<std::uint32_t> done;
    if (options.local) {
        return refresh_here(*mount, request, done);
    }
    const auto reply = ask_job(*mount, found, request, "refresh");
    if (reply) {
        note_done(*reply, done);
    }
    if (auto here = refresh_here(*mount, request, done); !here) {
        return reply ? here : tl::make_unexpected(reply.error());
    }
    if (done.size() < found.front().record.nodes) {
        std::vector<std::string> command = {own_program(), "refresh", "--local",
                                            "--tell-host", "--mount", *mount};
        command.insert(command.end(), paths->begin(), paths->end());
        const auto troubles = run_on_silent_nodes(command, read_launch(*mount), found,
                                                  reply ? std::optional(*reply) : std::nullopt);
        if (!troubles.empty()) {
            return failed("not refreshed on " + some_of(hosts_of(troubles)) +
                          ": programs there may see what was there before");
        }
    }
    return {};
}

}  // namespace

void add_refresh(CLI::App& app, Action& action) {
    auto options = std::make_shared<RefreshOptions>();
    auto* command =
        app.add_subcommand("refresh", "Show all nodes what lies at a path by now; returns when they do");
    add_mount_option(*command, options->mount);
    command->add_option("PATH", options->paths,
                        "What has changed, with everything below it (default: all that the job sees)");
    command->add_flag("--local", options->local)->group("");
    command->add_flag("--tell-host", options->tell_host)->group("");
    command->footer(
        "Files that are open keep their version.\n\n"
        "Examples:\n"
        "  copper refresh ~/project/train.py\n"
        "  copper refresh /lustre/sw/conda/lib/python3.11/site-packages");
    command->callback([options, &action] {
        action = [options] {
            const auto refreshed = run(*options);
            if (refreshed && options->tell_host) {
                std::cout << done_prefix << host_name() << std::endl;
            }
            return refreshed;
        };
    });
}

}  // namespace copper::cli
