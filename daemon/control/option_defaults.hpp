// Default values that depend on the machine, and checks whether given values fit the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mount_table.hpp"
#include "daemon/control/options.hpp"

namespace copper {

// The default trees: every shared filesystem that is mounted. If there is none: "/" if all nodes are on this
// machine, otherwise an error.
enum class JobSpan { one_machine, several_machines };
tl::expected<void, std::string> choose_trees(DaemonOptions& options, JobSpan span);

// Whether it looks the same on all nodes of a job, by its type (proc(5)), and is not another user's own.
bool is_shared_filesystem(const Mount& mount);

// An absolute, normalised path, perhaps through links.
std::string absolute_mount(const std::string& path);
// The identity of a mount point: an absolute, normalised path, with symbolic links resolved as far as the
// path exists.
std::string canonical_mount(const std::string& path);
// The default: /tmp/$USER/copper.
std::string default_mount();

inline constexpr std::uint64_t cache_bytes_default_max = std::uint64_t{16} << 30;
// The meaning of cache_bytes == 0 for each of the daemons that share this machine.
std::uint64_t default_cache_bytes(std::size_t daemons_here);
// Whether the caches of the daemons fit into this machine's memory. Call it where they run; `copper launch`
// may run elsewhere.
tl::expected<void, std::string> check_cache_bytes(const DaemonOptions& options, std::size_t daemons_here);

// For the filesystem of a tree to answer, where nothing of the job waits for it yet.
inline constexpr std::chrono::seconds tree_patience{5};

// Drops trees that lie within other trees.
void drop_nested(std::vector<std::string>& trees);

inline constexpr std::uint64_t cache_bytes_min = std::uint64_t{16} << 20;

// The job's id from the batch system, whatever --job says; empty: none.
std::string batch_job_id();
// Which run of the job this is: a job that is put back into the queue keeps its id. Slurm counts the runs;
// elsewhere it is any text. Empty: unknown, or no job.
std::string batch_job_run();
// For a process that Slurm has not told of a restart: usually the first run.
inline constexpr const char* batch_job_first_run = "0";

}  // namespace copper
