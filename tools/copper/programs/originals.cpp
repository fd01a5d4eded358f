#include "tools/copper/programs/originals.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "daemon/control/fingerprint.hpp"

namespace copper::cli {

namespace {

// mount;modules;NAME=fingerprint=original;NAME=fingerprint;NAME=fingerprint==;...;fingerprint of all before.
// NAME=fingerprint has not been set, NAME=fingerprint== has lost its original.
constexpr char between_fields = ';';
constexpr char within_field = '=';

// No separator and no line feed is left.
std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || c == between_fields || c == within_field || c == '%') {
            std::array<char, 4> code = {};
            std::snprintf(code.data(), code.size(), "%%%02x", static_cast<unsigned>(byte));
            result += code.data();
        } else {
            result += c;
        }
    }
    return result;
}

std::optional<std::string> unescaped(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            result += text[i];
            continue;
        }
        unsigned byte = 0;
        const auto digits = text.substr(i + 1, 2);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
        if (digits.size() != 2 || error != std::errc() || end != digits.data() + digits.size() || byte == 0) {
            return std::nullopt;
        }
        result += static_cast<char>(byte);
        i += 2;
    }
    return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const auto end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(end + 1);
    }
}

std::optional<Originals::Variable> variable_from(std::string_view field) {
    const auto parts = split(field, within_field);
    const bool is_lost = parts.size() == 4 && parts[2].empty() && parts[3].empty();
    if (parts.size() != 2 && parts.size() != 3 && !is_lost) {
        return std::nullopt;
    }
    auto name = unescaped(parts[0]);
    auto original = parts.size() == 3 ? unescaped(parts[2]) : std::nullopt;
    if (!name || name->empty() || (parts.size() == 3 && !original)) {
        return std::nullopt;
    }
    return Originals::Variable{.name = std::move(*name),
                               .fingerprint = std::string(parts[1]),
                               .original = std::move(original),
                               .is_lost = is_lost};
}

std::string field_of(const Originals::Variable& variable) {
    std::string text = between_fields + escaped(variable.name) + within_field + variable.fingerprint;
    if (variable.is_lost) {
        return text + within_field + within_field;
    }
    return variable.original ? text + within_field + escaped(*variable.original) : text;
}

std::string text_without_limit(const Originals& originals) {
    std::string text = escaped(originals.mount) + between_fields + escaped(originals.python_modules);
    for (const auto& variable : originals.variables) {
        text += field_of(variable);
    }
    return text + between_fields + fingerprint_of(text);
}

std::size_t length_of(const Originals::Variable& variable) {
    return variable.original ? field_of(variable).size() : 0;
}

}  // namespace

std::string to_text(Originals originals) {
    for (;;) {
        auto text = text_without_limit(originals);
        const auto longest = std::ranges::max_element(originals.variables, {}, length_of);
        if (text.size() <= originals_bytes_max || longest == originals.variables.end() ||
            !longest->original) {
            return text;
        }
        longest->original.reset();
        longest->is_lost = true;
    }
}

std::optional<Originals> parse_originals(std::string_view text) {
    const auto end = std::min(text.rfind(between_fields), text.size());
    if (text.substr(std::min(end + 1, text.size())) != fingerprint_of(text.substr(0, end))) {
        return std::nullopt;
    }
    const auto fields = split(text.substr(0, end), between_fields);
    auto mount = unescaped(fields.front());
    auto modules = fields.size() > 1 ? unescaped(fields[1]) : std::nullopt;
    if (!mount || mount->empty() || !modules) {
        return std::nullopt;
    }
    Originals originals{.mount = std::move(*mount), .python_modules = std::move(*modules)};
    for (std::size_t i = 2; i < fields.size(); ++i) {
        auto variable = variable_from(fields[i]);
        if (!variable) {
            return std::nullopt;
        }
        originals.variables.push_back(std::move(*variable));
    }
    return originals;
}

}  // namespace copper::cli
