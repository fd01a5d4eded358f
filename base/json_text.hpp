// JSON from and for other programs, other nodes and files. Pure functions. Those that parse throw a
// std::exception, like the library.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

namespace copper {

// nlohmann::json copies and prints recursively, so deeper nesting could overflow the stack.
inline constexpr std::size_t json_depth_max = 64;

// How deep arrays and objects nest in a text. Ignores brackets in strings.
std::size_t json_depth(std::string_view text);

// Also throws for a text that nests deeper than json_depth_max.
nlohmann::json parse_json(std::string_view text);

// read(JSON in `text`), or nothing if parsing or reading throws.
template <typename Read>
auto read_json(std::string_view text, Read read)
    -> std::optional<std::invoke_result_t<Read, const nlohmann::json&>> {
    try {
        return read(parse_json(text));
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

// One line, without its end. Replaces bytes that are not UTF-8: file names may have some, JSON may not.
std::string json_line(const nlohmann::json& json);
bool is_utf8(const std::string& text);

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
