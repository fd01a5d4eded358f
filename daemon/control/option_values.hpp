// Parses the values of options. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace copper {

// An error text.
tl::unexpected<std::string> wrong(std::string what);

std::string in_quotes(std::string_view text);
std::string in_mebibytes(std::uint64_t bytes);

struct CountRange {
    std::uint32_t min;
    std::uint32_t max;
};
tl::expected<std::uint32_t, std::string> parse_count(const std::string& text, CountRange range);

struct SecondsRange {
    double min;
    double max;
};
tl::expected<std::chrono::milliseconds, std::string> parse_seconds(const std::string& text,
                                                                   SecondsRange range);

tl::expected<bool, std::string> parse_switch(const std::string& text);

// A number of bytes, with K, M, G or T for powers of 1024.
tl::expected<std::uint64_t, std::string> parse_size(std::string_view text);

// For values numbered like their names.
template <typename T, std::size_t count>
tl::expected<T, std::string> parse_name(const std::string& text, const std::array<const char*, count>& names,
                                        const char* complaint) {
    const auto name = std::find(names.begin(), names.end(), text);
    if (name == names.end()) {
        return wrong(in_quotes(text) + complaint);
    }
    return static_cast<T>(name - names.begin());
}

}  // namespace copper
