// The nodes of a job, as batch systems and files name them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

// One host a line; '#' starts a comment; what follows the name on a line ("slots=4") is left out, and so is a
// later line of the same host. The order is kept: it is the order of ranks. Reads PBS_NODEFILE, `scontrol
// show hostnames` and hand-written lists.
std::vector<std::string> parse_hosts(std::string_view text);

// "nid001.site.edu" is "nid001".
std::string_view short_name(std::string_view host);

// Those of `hosts` that no name in `others` stands for, with or without the domain.
std::vector<std::string> hosts_without(const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& others);

}  // namespace copper::cli
