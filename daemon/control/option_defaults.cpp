#include "daemon/control/option_defaults.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/mount_table.hpp"
#include "base/path.hpp"
#include "daemon/control/fingerprint.hpp"
#include "daemon/control/memory_limit.hpp"
#include "daemon/control/option_values.hpp"

namespace copper {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t memory_share_default = 4;  // a quarter

std::string value(const char* variable) {
    const char* text = std::getenv(variable);
    return text != nullptr ? text : "";
}

// Flux begins its ids with this letter where the locale has it, otherwise with "f".
std::string in_ascii(std::string ids) {
    constexpr std::string_view hooked_f = "\u0192";
    for (auto at = ids.find(hooked_f); at != std::string::npos; at = ids.find(hooked_f, at)) {
        ids.replace(at, hooked_f.size(), "f");
    }
    return ids;
}

// In programs that `flux run` started within a batch job, FLUX_JOB_ID names the run, not the job. Since
// version 0.77, FLUX_JOB_ID_PATH is "/JOB/RUN" there, also if the run came from `flux proxy`, whose shell may
// be outside the job.
std::string flux_job_id() {
    const auto run = value("FLUX_JOB_ID");
    const auto path = value("FLUX_JOB_ID_PATH");
    const auto end = run.empty() ? path.size() : path.rfind('/');
    if (end != std::string::npos && end > 1) {
        return in_ascii(path.substr(1, end - 1));
    }
    const auto job = value("FLUX_ENCLOSING_ID");
    return in_ascii(job.empty() ? run : job);
}

}  // namespace

void drop_nested(std::vector<std::string>& trees) {
    std::sort(trees.begin(), trees.end());
    trees.erase(std::unique(trees.begin(), trees.end()), trees.end());
    const auto all = trees;
    std::erase_if(trees, [&all](const std::string& tree) {
        return std::any_of(all.begin(), all.end(), [&tree](const std::string& other) {
            return other != tree && is_within(tree, other);
        });
    });
}

std::string batch_job_id() {
    for (const char* variable : {"PBS_JOBID", "SLURM_JOB_ID"}) {
        if (const auto id = value(variable); !id.empty()) {
            return id;
        }
    }
    if (const auto id = flux_job_id(); !id.empty()) {
        return id;
    }
    // All elements of an array have the same number.
    if (const auto id = value("LSB_JOBID"); !id.empty()) {
        const auto index = value("LSB_JOBINDEX");
        return index.empty() || index == "0" ? id : id + "[" + index + "]";
    }
    // JOB_ID alone may be anybody's.
    if (const auto id = value("JOB_ID"); !id.empty() && !value("SGE_ROOT").empty()) {
        const auto task = value("SGE_TASK_ID");
        return task.empty() || task == "undefined" ? id : id + "." + task;
    }
    return {};
}

std::string batch_job_run() {
    if (!value("PBS_JOBID").empty()) {
        // MoM makes a new cookie for each run. It opens MoM's doors, so it is in no record.
        const auto cookie = value("PBS_JOBCOOKIE");
        return cookie.empty() ? "" : fingerprint_of(cookie);
    }
    if (!value("SLURM_JOB_ID").empty()) {
        const auto restarts = value("SLURM_RESTART_COUNT");  // sbatch(1)
        return restarts.empty() ? batch_job_first_run : restarts;
    }
    return {};
}

bool is_shared_filesystem(const Mount& mount) {
    static constexpr std::array types = {
        "9p",           "afs",
        "beegfs",       "ceph",
        "cifs",         "dvs",
        "fhgfs",        "fuse.ceph",
        "fuse.daos",    "fuse.ceph-fuse",
        "fuse.dfuse",   "fuse.glusterfs",
        "gfs2",         "gpfs",
        "lustre",       "nfs",
        "nfs4",         "ocfs2",
        "orangefs",     "panfs",
        "pvfs2",        "smb3",
        "smbfs",        "virtiofs",
        "wekafs",       "quobyte",
        "fuse.sshfs",   "fuse.juicefs",
        "fuse.quobyte", "fuse.pvfs2fuse",
    };
    const auto user = user_of(mount).value_or(0);
    return (is_moosefs(mount) || std::find(types.begin(), types.end(), mount.type) != types.end()) &&
           (user == 0 || user == ::geteuid());
}

tl::expected<void, std::string> choose_trees(DaemonOptions& options, JobSpan span) {
    if (!options.trees.empty()) {
        return {};
    }
    options.has_default_trees = true;
    for (const auto& mount : read_mounts()) {
        if (is_shared_filesystem(mount) && is_normalised_path(mount.point)) {
            options.trees.push_back(mount.point);
        }
    }
    if (options.trees.empty() && span == JobSpan::several_machines) {
        return wrong("no shared filesystem is mounted here; name the trees to mirror with --tree PATH");
    }
    if (options.trees.empty()) {
        options.trees.emplace_back("/");
    }
    drop_nested(options.trees);
    return {};
}

std::string default_mount() {
    std::string user;
    if (const char* variable = std::getenv("USER"); variable != nullptr && *variable != '\0') {
        user = variable;
    } else if (const passwd* entry = ::getpwuid(::geteuid()); entry != nullptr) {
        user = entry->pw_name;
    } else {
        user = std::to_string(::geteuid());
    }
    return "/tmp/" + user + "/copper";
}

std::string absolute_mount(const std::string& path) {
    std::error_code error;
    const fs::path whole = fs::absolute(path, error).lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();  // ends with a slash
}

std::string canonical_mount(const std::string& path) {
    std::error_code error;
    const fs::path whole = absolute_mount(path);
    // Do not resolve the last component: if its daemon were dead or stuck, touching it would fail or block.
    const fs::path parent = whole.parent_path();
    const fs::path resolved = fs::weakly_canonical(parent, error);
    return (error ? parent : resolved) / whole.filename();
}

std::uint64_t default_cache_bytes(std::size_t daemons_here) {
    return std::clamp(memory_limit_bytes() / memory_share_default / daemons_here, cache_bytes_min,
                      cache_bytes_default_max);
}

tl::expected<void, std::string> check_cache_bytes(const DaemonOptions& options, std::size_t daemons_here) {
    const auto memory_bytes = memory_limit_bytes();
    if (options.cache_bytes <= memory_bytes / daemons_here) {
        return {};
    }
    const bool alone = daemons_here == 1;
    return wrong("--cache-bytes: " + (alone ? "a cache" : std::to_string(daemons_here) + " caches") + " of " +
                 in_mebibytes(options.cache_bytes) + (alone ? " does" : " do") +
                 " not fit into this machine's memory (" + in_mebibytes(memory_bytes) + "): give at most " +
                 in_mebibytes(memory_bytes / daemons_here) + ", or leave the option out for " +
                 in_mebibytes(default_cache_bytes(daemons_here)));
}

}  // namespace copper
