// Parses the lists of nodes that batch systems and users write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace copper::cli {

// One host per line; '#' starts a comment. Ignores everything after the name on a line ("slots=4"), and
// repeated hosts. Keeps the order, which is the order of ranks. Reads PBS_NODEFILE, `scontrol show hostnames`
// and hand-written lists.
std::vector<std::string> parse_hosts(std::string_view text);

// "login,cn[08-11,20]" in full: the hosts in order, without repeated ones. The error says what is wrong.
tl::expected<std::vector<std::string>, std::string> expand_hosts(std::string_view list);

// "nid001.site.edu" is "nid001".
std::string_view short_name(std::string_view host);

// "cn1,cn2,cn3,cn4 and 8 more".
std::string some_of(const std::vector<std::string>& hosts);

// The `hosts` that `others` does not name, with or without the domain.
std::vector<std::string> hosts_without(const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& others);

}  // namespace copper::cli
