// How much memory this process may use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace copper {

// The machine's memory, or less if a control group (of a batch job or a container) limits it, or the address
// space of this process.
std::uint64_t memory_limit_bytes();

// The lowest limit of the control groups in `membership` (the text of /proc/<pid>/cgroup, cgroups(7)) and
// their ancestors; the highest number if there is none. `root`: where both versions of control groups are
// mounted.
std::uint64_t control_group_limit_bytes(std::string_view membership, const std::string& root);

}  // namespace copper
