// How much memory this process may use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace copper {

// The machine's memory, or less where a control group (of a batch job, a container) limits it.
std::uint64_t memory_limit_bytes();

// The lowest limit of the control groups that `membership` (the text of /proc/<pid>/cgroup, cgroups(7)) names
// and of those above them; the highest number if there is none. `root`: where they are mounted, both
// versions.
std::uint64_t control_group_limit_bytes(std::string_view membership, const std::string& root);

}  // namespace copper
