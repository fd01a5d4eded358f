#include "daemon/control/option_values.hpp"

#include <charconv>
#include <cmath>
#include <sstream>

namespace copper {

tl::unexpected<std::string> wrong(std::string what) {
    return tl::make_unexpected(std::move(what));
}
std::string in_quotes(std::string_view text) {
    return "'" + std::string(text) + "'";
}

std::string in_mebibytes(std::uint64_t bytes) {
    return std::to_string(bytes >> 20U) + "M";
}

tl::expected<std::uint32_t, std::string> parse_count(const std::string& text, CountRange range) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < range.min || value > range.max) {
        return wrong(in_quotes(text) + " is not a whole number from " + std::to_string(range.min) + " to " +
                     std::to_string(range.max));
    }
    return value;
}

tl::expected<std::chrono::milliseconds, std::string> parse_seconds(const std::string& text,
                                                                   SecondsRange range) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // This form also refuses "nan".
    if (error != std::errc() || end != text.data() + text.size() ||
        !(value >= range.min && value <= range.max)) {
        std::ostringstream message;
        message << in_quotes(text) << " is not a number of seconds from " << range.min << " to " << range.max;
        return wrong(message.str());
    }
    return std::chrono::milliseconds(std::llround(value * 1000));
}

tl::expected<bool, std::string> parse_switch(const std::string& text) {
    if (text == "true" || text == "1" || text == "yes" || text == "on") {
        return true;
    }
    if (text == "false" || text == "0" || text == "no" || text == "off") {
        return false;
    }
    return wrong(in_quotes(text) + " is neither true nor false");
}

tl::expected<std::uint64_t, std::string> parse_size(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    if (suffix.size() == 3 && suffix.ends_with("iB")) {
        suffix = suffix.substr(0, 1);
    }
    static constexpr std::string_view suffixes = "KMGT";
    constexpr unsigned bits_per_suffix = 10;
    const auto at = suffix.size() == 1
                        ? suffixes.find(suffix.front() >= 'a' ? static_cast<char>(suffix.front() - 'a' + 'A')
                                                              : suffix.front())
                        : std::string_view::npos;
    const bool sound = error == std::errc() && (suffix.empty() || at != std::string_view::npos);
    const unsigned shift = suffix.empty() ? 0 : bits_per_suffix * (static_cast<unsigned>(at) + 1);
    if (!sound || (shift != 0 && value > (~0ULL >> shift))) {
        return wrong(in_quotes(text) +
                     " is not a size; sizes are numbers of bytes, with K, M, G or T (or KiB, MiB, ...) for "
                     "powers of 1024");
    }
    return value << shift;
}

}  // namespace copper
