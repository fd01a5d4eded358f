// `copper run --view`: whether a program can see the mirror at the original paths, and how it gets there.
#pragma once

#include <string>
#include <string_view>

#include "daemon/control/instance.hpp"
#include "daemon/control/view.hpp"
#include "tools/copper/common/failure.hpp"

namespace copper::cli {

enum class ViewChoice {
    automatic,  // the view, where the node can have one and the program can still write where it works
    bind,       // the view, or nothing
    paths,      // the mirror lies at its own paths, and the environment leads there
};

// Why `command` should not see this mirror at the original paths; empty if it may.
std::string why_paths(const InstanceRecord& record, const std::string& command);

// `copper __view`, for programs that may mount themselves: prints the mount point of this job's mirror here
// and its trees, a NUL behind each. Returns the exit code: no success if its programs should not see it at
// these paths.
inline constexpr std::string_view places_command = "__view";
int print_places();

// The node's view, which this process makes if it is the first. The error says why there is none.
tl::expected<View, std::string> find_view(const InstanceRecord& record);

}  // namespace copper::cli
