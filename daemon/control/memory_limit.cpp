#include "daemon/control/memory_limit.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace copper {
namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

// No limit if the file says "max" or does not exist.
std::uint64_t limit_in(const std::filesystem::path& file) {
    std::ifstream text(file);
    std::uint64_t bytes = 0;
    return text >> bytes ? bytes : no_limit;
}

std::uint64_t lowest_limit(const std::string& hierarchy, std::filesystem::path group, const char* file) {
    std::uint64_t lowest = no_limit;
    while (true) {
        lowest = std::min(lowest, limit_in(hierarchy + group.string() + "/" + file));
        if (!group.has_relative_path()) {
            return lowest;
        }
        group = group.parent_path();
    }
}

}  // namespace

std::uint64_t control_group_limit_bytes(std::string_view membership, const std::string& root) {
    std::uint64_t lowest = no_limit;
    std::istringstream lines{std::string(membership)};
    for (std::string line; std::getline(lines, line);) {
        // hierarchy:controllers:path
        const auto first = line.find(':');
        const auto second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) {
            continue;
        }
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const std::string group = line.substr(second + 1);
        if (controllers == ",,") {
            lowest = std::min(lowest, lowest_limit(root, group, "memory.max"));
        } else if (controllers.find(",memory,") != std::string::npos) {
            lowest = std::min(lowest, lowest_limit(root + "/memory", group, "memory.limit_in_bytes"));
        }
    }
    return lowest;
}

std::uint64_t memory_limit_bytes() {
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const long page_bytes = ::sysconf(_SC_PAGESIZE);
    const auto machine = pages > 0 && page_bytes > 0
                             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes)
                             : 0;
    std::ifstream file("/proc/self/cgroup");
    std::stringstream membership;
    membership << file.rdbuf();
    rlimit space = {};
    ::getrlimit(RLIMIT_AS, &space);  // `ulimit -v`; Grid Engine's h_vmem
    return std::min({machine, control_group_limit_bytes(membership.str(), "/sys/fs/cgroup"),
                     std::uint64_t{space.rlim_cur}});
}

}  // namespace copper
