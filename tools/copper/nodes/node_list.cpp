#include "tools/copper/nodes/node_list.hpp"

#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "tools/copper/common/words.hpp"

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

namespace {

constexpr std::size_t expanded_hosts_max = 1U << 18;

// The parts between the commas that stand outside brackets.
std::vector<std::string_view> parts_of(std::string_view list) {
    std::vector<std::string_view> parts;
    std::size_t start = 0;
    bool in_brackets = false;
    for (std::size_t i = 0; i <= list.size(); ++i) {
        if (i == list.size() || (list[i] == ',' && !in_brackets)) {
            parts.push_back(list.substr(start, i - start));
            start = i + 1;
        } else if (list[i] == '[' || list[i] == ']') {
            in_brackets = list[i] == '[';
        }
    }
    return parts;
}

std::optional<std::uint32_t> number_of(std::string_view digits) {
    std::uint32_t number = 0;
    const auto* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// "08-11": 08, 09, 10, 11. Empty if it is no range, or too long.
std::vector<std::string> range(std::string_view text) {
    const auto first = text.substr(0, text.find('-'));
    const auto from = number_of(first);
    const auto to = number_of(text.substr(first.size() == text.size() ? 0 : first.size() + 1));
    std::vector<std::string> numbers;
    if (from && to && *to - *from < expanded_hosts_max) {
        for (std::uint64_t number = *from; number <= *to; ++number) {
            const auto digits = std::to_string(number);
            numbers.push_back(std::string(first.size() - std::min(first.size(), digits.size()), '0') +
                              digits);
        }
    }
    return numbers;
}

// Appends the hosts of a part. False if it is malformed, or there are too many.
bool expand(const std::string& before, std::string_view part, std::vector<std::string>& hosts) {
    const auto open = part.find('[');
    const auto close = part.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
        hosts.push_back(before + std::string(part));
        return open == close && hosts.size() <= expanded_hosts_max;
    }
    const auto prefix = before + std::string(part.substr(0, open));
    for (const auto each : parts_of(part.substr(open + 1, close - open - 1))) {
        const auto numbers = range(each);
        for (const auto& number : numbers) {
            if (!expand(prefix + number, part.substr(close + 1), hosts)) {
                return false;
            }
        }
        if (numbers.empty()) {
            return false;
        }
    }
    return true;
}

}  // namespace

tl::expected<std::vector<std::string>, std::string> expand_hosts(std::string_view list) {
    std::vector<std::string> all;
    for (const auto part : parts_of(list)) {
        if (!part.empty() && !expand("", part, all)) {
            return tl::make_unexpected(std::string(part) + " is no list of hosts such as cn[01-08,12]");
        }
    }
    auto hosts = parse_hosts(joined(all, "\n"));
    if (hosts.empty()) {
        return tl::make_unexpected(std::string("it names no host"));
    }
    return hosts;
}

std::string_view short_name(std::string_view host) {
    // The dots of an address do not start a domain.
    const bool address = host.find_first_not_of("0123456789.") == std::string_view::npos;
    return address ? host : host.substr(0, host.find('.'));
}

std::string some_of(const std::vector<std::string>& hosts) {
    constexpr std::size_t named_max = 4;
    const auto named = std::min(hosts.size(), named_max);
    return joined(std::span(hosts).first(named), ",") +
           (hosts.size() > named ? " and " + std::to_string(hosts.size() - named) + " more" : "");
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
