// What stands for an option that was not given, where that depends on the machine; and whether what was given
// fits the machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/options.hpp"

namespace copper {

// Where no tree was given: every shared filesystem that is mounted; "/" if there is none and all nodes are on
// this machine, else an error.
enum class JobSpan { one_machine, several_machines };
tl::expected<void, std::string> choose_trees(DaemonOptions& options, JobSpan span);

// The types (proc(5)) of filesystems that all nodes of a job see alike.
bool is_shared_filesystem(std::string_view type);

// An absolute, normalised path with symbolic links resolved as far as it exists: what a mount point is known
// by.
std::string canonical_mount(const std::string& path);
// The default: /tmp/$USER/copper.
std::string default_mount();

inline constexpr std::uint64_t cache_bytes_default_max = std::uint64_t{16} << 30;
// What cache_bytes == 0 stands for, in each of the daemons that share this machine.
std::uint64_t default_cache_bytes(std::size_t daemons_here);
// Whether their caches fit into this machine's memory. For the machine that they run on: where `copper
// launch` runs can be another one.
tl::expected<void, std::string> check_cache_bytes(const DaemonOptions& options, std::size_t daemons_here);

// A tree within another one says nothing new.
void drop_nested(std::vector<std::string>& trees);

inline constexpr std::uint64_t cache_bytes_min = std::uint64_t{16} << 20;

// The job's id as the batch system gave it (PBS, Slurm or Flux), whatever its --job says; empty: none.
std::string batch_job_id();

}  // namespace copper
