#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <system_error>
#include <thread>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "base/path.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/nodes/ask_job.hpp"
#include "tools/copper/nodes/node_list.hpp"
#include "tools/copper/nodes/other_nodes.hpp"
#include "tools/copper/programs/environment.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

namespace fs = std::filesystem;

// A node answers when no lookup below the path is under way, and those may wait for a slow filesystem.
constexpr std::chrono::milliseconds patience{60000};
// For what a node does alone, and for the successor of a lost daemon.
constexpr std::chrono::milliseconds patience_here{20000};
constexpr std::chrono::milliseconds look_every{100};
constexpr int rounds_max = 8;  // to follow links

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

// Where `path` leads, and each link on the way, which may lead elsewhere by now: as paths without links
// before their last name. What is not there is as it is told.
std::set<std::string> places_of(const fs::path& path) {
    constexpr int links_max = 40;
    std::set<std::string> places;
    std::deque<fs::path> left(path.begin(), path.end());
    fs::path way;
    for (int links = 0; !left.empty() && links < links_max;) {
        const fs::path name = left.front();
        left.pop_front();
        if (name.is_absolute() || name == "..") {
            way = name.is_absolute() ? name : way.parent_path();
        } else if (!name.empty() && name != ".") {
            std::error_code is_no_link;
            const fs::path target = fs::read_symlink(way / name, is_no_link);
            if (is_no_link) {
                way /= name;
                continue;
            }
            ++links;
            places.insert((way / name).string());
            left.insert(left.begin(), target.begin(), target.end());
        }
    }
    places.insert(way.string());
    return places;
}

struct Wanted {
    std::string text;  // as given
    fs::path path;
    bool was_there = false;
};

std::string in_mirror(const std::vector<Found>& mirrors, const std::string& path) {
    for (const auto& mirror : mirrors) {
        if (auto original = out_of_mirror(mirror.record.mount, path)) {
            return std::move(*original);
        }
    }
    return path;
}

Result<std::vector<Wanted>> wanted_by(const std::vector<Found>& mirrors, const RefreshOptions& options) {
    std::vector<Wanted> all;
    for (const auto& text : options.paths) {
        std::error_code error;
        const fs::path path = fs::absolute(text, error);
        if (text.empty() || error) {
            return misused("PATH: '" + text + "' is none");
        }
        if (!is_utf8(path.string())) {
            return misused(text + ": its name is not UTF-8: refresh a directory above it");
        }
        Wanted wanted{.text = text, .path = in_mirror(mirrors, path.string())};
        wanted.was_there =
            is_there(wanted.path) || is_there(mirrors.front().record.mount + wanted.path.string());
        all.push_back(std::move(wanted));
    }
    return all;
}

// Fails if they are too many.
Result<std::set<std::string>> places_of(const std::vector<Found>& mirrors, const std::vector<Wanted>& all) {
    std::set<std::string> places;
    for (const auto& wanted : all) {
        for (const auto& place : places_of(wanted.path)) {
            places.insert(in_mirror(mirrors, place));
        }
    }
    if (places.size() > refreshed_paths_max) {
        return misused("at most " + std::to_string(refreshed_paths_max) +
                       " paths at a time, with the links on the way: refresh a directory above them");
    }
    return places;
}

struct Outcome {
    std::set<std::uint32_t> done;                    // ranks
    std::map<std::uint32_t, std::string> refused{};  // hosts that answered with an error, and it

    bool is_known(std::uint32_t rank) const { return done.contains(rank) || refused.contains(rank); }
};

void note(const ControlReply& reply, Outcome& outcome) {
    for (const auto& part : reply.parts) {
        if (part.body.is_object() && part.body.contains("error") && part.body["error"] == "") {
            outcome.done.insert(part.rank);
            outcome.refused.erase(part.rank);
        } else {
            outcome.refused[part.rank] = text_of(part.body, "host") + ": " + text_of(part.body, "error");
        }
    }
}

// On this node, what is not done yet: a successor serves alone, and only a program on its node reaches it.
Result<void> refresh_here(const std::string& mount, ControlRequest request, Outcome& outcome) {
    request.patience = patience_here;
    const auto until = std::chrono::steady_clock::now() + patience_here;
    for (;;) {
        std::string left;
        for (const auto& [directory, record] : instances_of_job(mount)) {
            if (record.without_mirror || outcome.is_known(record.rank)) {
                continue;
            }
            if (const auto reply = ask(directory + "/control", request); reply && reply->error.empty()) {
                note(*reply, outcome);
            }
            if (!outcome.is_known(record.rank)) {
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

// On all nodes.
Result<void> refresh_places(const std::string& mount, const std::vector<Found>& found,
                            const std::set<std::string>& places) {
    const ControlRequest request{
        .verb = verb::refresh, .argument = nlohmann::json(places).dump(), .patience = patience};
    Outcome outcome;
    const auto reply = ask_job(mount, found, request, "refresh");
    if (reply) {
        note(*reply, outcome);
    }
    if (auto here = refresh_here(mount, request, outcome); !here) {
        return reply ? here : tl::make_unexpected(reply.error());
    }
    if (!outcome.refused.empty()) {
        return failed("not refreshed on " + outcome.refused.begin()->second);
    }
    if (outcome.done.size() >= found.front().record.nodes) {
        return {};
    }
    std::vector<std::string> command = {own_program(), "refresh", "--local", "--tell-host", "--mount", mount};
    command.insert(command.end(), places.begin(), places.end());
    const auto troubles =
        run_on_silent_nodes(command, read_launch(mount), found, reply ? std::optional(*reply) : std::nullopt);
    return troubles.empty() ? Result<void>()
                            : failed("not refreshed on " + some_of(hosts_of(troubles)) +
                                     ": programs there may see what was there before");
}

Result<void> run(const RefreshOptions& options) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto found = instances_of_job(*mount);
    if (found.empty() && options.local) {
        return {};  // the job goes on without a mirror here
    }
    if (found.empty()) {
        return no_daemon_here(*mount, {.name = "refresh", .arguments = "..."});
    }
    for (const auto& instance : found) {
        if (auto checked = check_job(instance.record); !checked) {
            return checked;
        }
    }
    if (options.local) {
        Outcome outcome;
        return refresh_here(*mount, {.verb = verb::refresh, .argument = nlohmann::json(options.paths).dump()},
                            outcome);
    }
    if (options.paths.empty()) {
        return refresh_places(*mount, found, {"/"});
    }
    const auto wanted = wanted_by(found, options);
    if (!wanted) {
        return tl::make_unexpected(wanted.error());
    }
    // In the view, what is to be refreshed tells where links lead, so they are followed once more.
    std::set<std::string> refreshed;
    for (int round = 0; round < rounds_max; ++round) {
        const auto places = places_of(found, *wanted);
        if (!places) {
            return tl::make_unexpected(places.error());
        }
        if (*places == refreshed) {
            break;
        }
        if (auto done = refresh_places(*mount, found, *places); !done) {
            return done;
        }
        refreshed = *places;
    }
    for (const auto& [text, path, was_there] : *wanted) {
        if (!was_there && !is_there(found.front().record.mount + path.string())) {
            return failed(text + ": no such path");
        }
    }
    return {};
}

}  // namespace

void add_refresh(CLI::App& app, Action& action) {
    auto options = std::make_shared<RefreshOptions>();
    auto* command = app.add_subcommand(
        "refresh", "Replace what all nodes see at a path by its present state; returns when they do");
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
