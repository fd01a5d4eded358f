// Parses JSON from another program, another node or a file. Pure functions. They throw a std::exception, like
// the library; catch it where the text is parsed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace copper {

// nlohmann::json copies and prints recursively, so deeper nesting could overflow the stack.
inline constexpr std::size_t json_depth_max = 64;

// How deep arrays and objects nest in a text. Ignores brackets in strings.
std::size_t json_depth(std::string_view text);

// Also throws for a text that nests deeper than json_depth_max.
nlohmann::json parse_json(std::string_view text);

// Throws unless the value is a whole number that fits T. get<T>() would truncate it, and is undefined for
// large fractions.
template <std::integral T>
T whole_number(const nlohmann::json& value) {
    if (value.is_number_unsigned() && std::in_range<T>(value.get<std::uint64_t>())) {
        return static_cast<T>(value.get<std::uint64_t>());
    }
    if (value.is_number_integer() && !value.is_number_unsigned() &&
        std::in_range<T>(value.get<std::int64_t>())) {
        return static_cast<T>(value.get<std::int64_t>());
    }
    throw std::out_of_range("not a whole number in its range");
}

}  // namespace copper
