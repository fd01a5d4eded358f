#include "tools/copper/node_list.hpp"

#include <set>

namespace copper::cli {

std::vector<std::string> parse_hosts(std::string_view text) {
    std::vector<std::string> hosts;
    std::set<std::string_view> seen;
    while (!text.empty()) {
        const auto end = text.find('\n');
        auto line = text.substr(0, end);
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
        line = line.substr(0, line.find('#'));
        const auto first = line.find_first_not_of(" \t\r");
        if (first == std::string_view::npos) {
            continue;
        }
        line.remove_prefix(first);
        const auto host = line.substr(0, line.find_first_of(" \t\r"));
        if (seen.insert(host).second) {
            hosts.emplace_back(host);
        }
    }
    return hosts;
}

std::string_view short_name(std::string_view host) {
    // The dots of an address do not start a domain.
    const bool address = host.find_first_not_of("0123456789.") == std::string_view::npos;
    return address ? host : host.substr(0, host.find('.'));
}

std::vector<std::string> hosts_without(const std::vector<std::string>& hosts,
                                       const std::vector<std::string>& others) {
    std::set<std::string_view> there;
    for (const auto& other : others) {
        there.insert(short_name(other));
    }
    std::vector<std::string> without;
    for (const auto& host : hosts) {
        if (!there.contains(short_name(host))) {
            without.push_back(host);
        }
    }
    return without;
}

}  // namespace copper::cli
