#include "base/json_text.hpp"

#include <algorithm>

namespace copper {

std::size_t json_depth(std::string_view text) {
    std::size_t depth = 0;
    std::size_t deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\') {
            ++i;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == '[' || c == '{')) {
            deepest = std::max(deepest, ++depth);
        } else if (!in_string && (c == ']' || c == '}') && depth > 0) {
            --depth;
        }
    }
    return deepest;
}

nlohmann::json parse_json(std::string_view text) {
    if (json_depth(text) > json_depth_max) {
        throw std::length_error("nests deeper than " + std::to_string(json_depth_max));
    }
    return nlohmann::json::parse(text);
}

std::string json_line(const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_utf8(const std::string& text) {
    using Errors = nlohmann::json::error_handler_t;
    const nlohmann::json json = text;
    return json.dump(-1, ' ', false, Errors::ignore) == json.dump(-1, ' ', false, Errors::replace);
}

}  // namespace copper
