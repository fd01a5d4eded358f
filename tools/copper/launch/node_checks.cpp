#include "tools/copper/launch/node_checks.hpp"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/answer_in_time.hpp"
#include "base/error_text.hpp"
#include "base/fuse_access.hpp"
#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "daemon/control/memory_limit.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/private_directory.hpp"
#include "daemon/control/version.hpp"
#include "daemon/control/view.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/instances.hpp"
#include "tools/copper/nodes/launch_record.hpp"

namespace copper::cli {

namespace {

constexpr std::array verdict_names = {"good", "warning", "problem"};
constexpr rlim_t open_files_min = 64;
constexpr rlim_t file_bytes_min = rlim_t{64} << 20;
constexpr std::uint64_t cache_bytes_useful_min = std::uint64_t{512} << 20;
constexpr std::chrono::seconds version_patience{10};

Finding good(std::string check, std::string text) {
    return {.check = std::move(check), .verdict = Verdict::good, .text = std::move(text), .advice = {}};
}
Finding warning(std::string check, std::string text, std::string advice) {
    return {std::move(check), Verdict::warning, std::move(text), std::move(advice)};
}
Finding problem(std::string check, std::string text, std::string advice) {
    return {std::move(check), Verdict::problem, std::move(text), std::move(advice)};
}

bool is_mounted(const std::string& mount) {
    const auto mounts = copper_mounts();
    return std::ranges::any_of(mounts, [&](const CopperMount& m) { return m.point == mount; });
}

struct Mirror {
    pid_t process = 0;         // 0: it has ended
    bool is_launcher = false;  // the process is not a daemon of this node
    std::string batch_job = {};
};

// On this node, alive or dead, by what --mount names: DIR is also DIR.0, DIR.1, ...
std::map<std::string, Mirror> own_mirrors() {
    std::map<std::string, Mirror> mirrors;
    const auto mirror_at = [&](const std::string& point) -> Mirror& {
        auto found = mirrors.find(point);
        if (found == mirrors.end()) {
            found = std::ranges::find_if(
                mirrors, [&](const auto& each) { return local_node(point, each.first).has_value(); });
        }
        return found != mirrors.end() ? found->second : mirrors[point];
    };
    for (const auto& launch : find_launches()) {
        const bool runs = is_running(launch.process);
        mirrors[launch.mount] = {
            .process = runs ? launch.process.pid : 0, .is_launcher = runs, .batch_job = launch.batch_job};
    }
    for (const auto& directory : find_instances(::getuid())) {
        if (const auto record = read_instance(directory); record && !record->without_mirror) {
            auto& mirror = mirror_at(record->mount);
            if (is_running(*record)) {
                mirror.process = record->pid;
                mirror.is_launcher = false;
            }
            mirror.batch_job = record->batch_job;
        }
    }
    for (const auto& mount : copper_mounts()) {
        if (mount.user == ::getuid()) {
            mirror_at(mount.point);
        }
    }
    return mirrors;
}

}  // namespace

nlohmann::json to_json(const Finding& finding) {
    return {{"check", finding.check},
            {"verdict", verdict_names.at(static_cast<std::size_t>(finding.verdict))},
            {"text", finding.text},
            {"advice", finding.advice}};
}

Finding finding_from(const nlohmann::json& json) {
    const auto name = json.at("verdict").get<std::string>();
    const auto verdict = std::find(verdict_names.begin(), verdict_names.end(), name);
    if (verdict == verdict_names.end()) {
        throw std::out_of_range(name + ": no verdict");
    }
    return {json.at("check").get<std::string>(), static_cast<Verdict>(verdict - verdict_names.begin()),
            json.at("text").get<std::string>(), json.at("advice").get<std::string>()};
}

Finding check_fuse(bool allow_other) {
    const auto obstacle = obstacle_in_fuse(allow_other ? Audience::everyone : Audience::launching_user);
    return obstacle ? problem("fuse", obstacle->text, obstacle->advice)
                    : good("fuse", "/dev/fuse can be opened");
}

// A user namespace knows the main group alone, and root's view needs none.
bool has_groups_unknown_in_view() {
    std::vector<gid_t> groups(65536);  // NGROUPS_MAX
    const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
    groups.resize(static_cast<std::size_t>(std::max(count, 0)));
    return ::geteuid() != 0 && std::ranges::any_of(groups, [](gid_t group) { return group != ::getegid(); });
}

Finding check_view() {
    const auto made = NewView::make("", {});
    if (!made) {
        return warning("view", made.error().why, "'copper run' changes PATH, PYTHONPATH, ... instead");
    }
    const std::string text = "'copper run' can show the mirror at the original paths";
    return good("view", has_groups_unknown_in_view()
                            ? text + " (chgrp to another group than your main one needs '--view paths')"
                            : text);
}

Finding check_limits() {
    rlimit files = {};
    rlimit bytes = {};
    ::getrlimit(RLIMIT_NOFILE, &files);
    ::getrlimit(RLIMIT_FSIZE, &bytes);
    if (files.rlim_max < open_files_min) {
        return problem("limits",
                       "at most " + std::to_string(files.rlim_max) + " files may be open (ulimit -n)",
                       "Copper and its launcher need " + std::to_string(open_files_min));
    }
    if (bytes.rlim_cur < file_bytes_min) {
        return problem("limits",
                       "files may have at most " + std::to_string(bytes.rlim_cur) + " bytes (ulimit -f)",
                       "Copper and its launcher need " + std::to_string(file_bytes_min));
    }
    files.rlim_cur = std::max(files.rlim_cur, open_files_min);
    ::setrlimit(RLIMIT_NOFILE, &files);
    return good("limits", "open files and file size suffice");
}

Finding check_copperd(const std::string& copperd) {
    const auto said = capture({copperd, "--version"}, version_patience);
    if (!said || !succeeded(*said)) {
        return problem("copperd",
                       copperd + " does not start: " +
                           (said ? said->text.substr(0, said->text.find('\n')) : said.error().reason),
                       "install Copper, and the libraries that it names, at the same place on all nodes");
    }
    const auto version = said->text.substr(0, said->text.find('\n'));
    if (version != version_text("copperd")) {
        return problem("copperd", "it is another version: " + version,
                       "install " + version_text("copperd") + " on all nodes");
    }
    return good("copperd", version);
}

Finding check_memory(std::uint64_t cache_bytes) {
    const auto cache = cache_bytes != 0 ? cache_bytes : default_cache_bytes(1);
    const auto text = "a cache of up to " + in_units(cache) + " of " + in_units(memory_limit_bytes());
    if (cache > memory_limit_bytes()) {
        return problem("memory", text, "choose a smaller --cache-bytes");
    }
    return cache < cache_bytes_useful_min
               ? warning("memory", text,
                         "large environments will not fit: give --cache-bytes, or more memory to the job")
               : good("memory", text);
}

Finding check_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    const int count = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
    const auto text = std::to_string(count) + " of " + std::to_string(std::thread::hardware_concurrency()) +
                      " cores are allowed here";
    return count == 1
               ? warning(
                     "cores", text,
                     "the daemon shares this core with the programs: launch outside of a job step that is "
                     "bound to it, or give --cores")
               : good("cores", text);
}

Finding check_room_for_files() {
    if (const auto room = check_room(); !room) {
        return problem("tmp", room.error(), "");
    }
    if (const auto why = why_directory_is_taken(usual_private_directory(::geteuid())); !why.empty()) {
        return warning("tmp", why, "the next launch uses another directory on all nodes");
    }
    return good("tmp", "there is room in /tmp");
}

Finding check_mount(const std::string& mount, const std::string& batch_job) {
    if (const auto live = find_live_instance(::getuid(), mount)) {
        const bool own = live->batch_job.empty() || live->batch_job == batch_job;
        return own ? good("mount", mount + " is served by process " + std::to_string(live->pid))
                   : warning("mount", already_served(*live, batch_job), "");
    }
    if (is_mounted(mount)) {
        return problem("mount", mount + " is a dead Copper mount",
                       "clear it with " + stop_command(mount, StopSpan::this_node));
    }
    if (const auto why = why_others_can_exchange(std::string(parent_path(mount))); !why.empty()) {
        return mount == canonical_mount(default_mount())
                   ? warning("mount", why, "the next launch mounts elsewhere on all nodes, and says where")
                   : problem("mount", why, "or choose another --mount");
    }
    return good("mount", mount + " is free");
}

std::vector<Finding> check_others(const std::string& mount, const std::string& batch_job) {
    auto others = own_mirrors();
    if (others.contains(mount) && (others[mount].process != 0 || is_mounted(mount))) {
        others.erase(mount);  // see check_mount()
    }
    std::vector<Finding> findings;
    for (const auto& [place, mirror] : others) {
        const auto stop = stop_command(place);
        const auto& job = mirror.batch_job;
        const auto process = "process " + std::to_string(mirror.process);
        const auto served =
            place +
            (mirror.is_launcher ? " was launched from here (" + process + ")" : " is served by " + process) +
            (job.empty() ? "" : ", for job " + job);
        findings.push_back(
            mirror.process == 0 ? warning("others", place + ": its daemons have ended without cleaning up",
                                          "clear it with " + stop)
            : job.empty() || job == batch_job
                ? warning("others", served, "if nothing uses it, end it with " + stop)
            : mirror.is_launcher
                ? good("others", served)
                : warning("others", served, "it shares this node's memory: see --cache-bytes"));
    }
    if (findings.empty()) {
        findings.push_back(good("others", "no other mirror of this user is here"));
    }
    return findings;
}

Finding check_tree(const std::string& tree) {
    const auto trouble = answer_in_time(tree_patience, [&tree] {
        const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(tree.c_str()), &::closedir);
        return directory ? std::string() : error_text();
    });
    if (!trouble) {
        return problem("tree", tree + ": its filesystem does not answer",
                       "other nodes would read for this one; see whether its mount works: ls " + tree);
    }
    return trouble->empty()
               ? good("tree", tree + " can be read")
               : problem("tree", tree + ": " + *trouble, "mount it on this node, or give another --tree");
}

}  // namespace copper::cli
