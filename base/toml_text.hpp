// TOML from files that users write.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace copper {

// `name` stands in front of the error, with the line.
inline tl::expected<toml::table, std::string> parse_toml(std::string_view text, const std::string& name) {
    try {
        return toml::parse(text);
    } catch (const toml::parse_error& failure) {
        std::ostringstream message;
        message << name << ":" << failure.source().begin.line << ": " << failure.description();
        return tl::make_unexpected(message.str());
    }
}

// The text of a file that is named in a command line or the like.
inline tl::expected<std::string, std::string> read_text_file(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
        return tl::make_unexpected(path + ": " + (error ? error.message() : "is not a file"));
    }
    std::ifstream file(path);
    std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file) {
        return tl::make_unexpected(path + ": cannot be read");
    }
    return text;
}

}  // namespace copper
