#include "daemon/control/option_sources.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>

#include "base/toml_text.hpp"
#include "daemon/control/option_values.hpp"
#include "daemon/control/options.hpp"

namespace copper {
namespace {

using Texts = std::vector<std::string>;
using Taken = tl::expected<void, std::string>;

constexpr std::string_view environment_prefix = "COPPER_";
constexpr const char* config_variable = "COPPER_CONFIG";
// Other variables that are no options.
constexpr std::array other_variables = {
    "COPPER_ROOT",            // in the job scripts of ALCF's Copper
    "COPPER_MIRROR",          // asks a site's prologue for a mirror
    "COPPER_BYTECODE",        // tells Python's sitecustomize module where to keep what it compiles
    "COPPER_ORIGINALS",       // what was before `copper env`
    "COPPER_MIRRORED_TREES",  // tells Python's sitecustomize module what `copper env` rewrites
};

// An option that environment and file may set.
bool is_public_name(const std::string& name) {
    const OptionRow* row = find_row(name);
    const auto& of_launch = launch_option_names();
    return (row != nullptr && row->audience != OptionRow::Audience::hidden) ||
           std::find(of_launch.begin(), of_launch.end(), name) != of_launch.end();
}

std::string option_name_of(std::string_view variable) {
    std::string name(variable.substr(environment_prefix.size()));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
        if (c == '_') {
            return '-';
        }
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return name;
}

Texts split_at_colons(std::string_view text) {
    Texts parts;
    while (!text.empty()) {
        const auto colon = std::min(text.find(':'), text.size());
        if (colon != 0) {
            parts.emplace_back(text.substr(0, colon));
        }
        text.remove_prefix(std::min(colon + 1, text.size()));
    }
    return parts;
}

std::optional<std::string> text_of(const toml::node& node) {
    if (const auto* text = node.as_string()) {
        return text->get();
    }
    std::ostringstream out;
    if (const auto* number = node.as_integer()) {
        out << number->get();
    } else if (const auto* fraction = node.as_floating_point()) {
        out << fraction->get();
    } else if (const auto* truth = node.as_boolean()) {
        out << (truth->get() ? "true" : "false");
    } else {
        return std::nullopt;
    }
    return out.str();
}

std::optional<Texts> texts_of(const toml::node& node) {
    const auto* array = node.as_array();
    if (array == nullptr) {
        auto text = text_of(node);
        return text ? std::optional(Texts{std::move(*text)}) : std::nullopt;
    }
    Texts texts;
    for (const auto& element : *array) {
        auto text = text_of(element);
        if (!text) {
            return std::nullopt;
        }
        texts.push_back(std::move(*text));
    }
    return texts.empty() ? std::nullopt : std::optional(texts);
}

}  // namespace

const std::vector<std::string>& launch_option_names() {
    static const std::vector<std::string> names = {"nodes-from", "local", "launcher", "launcher-args",
                                                   "keep-env"};
    return names;
}

std::string variable_of(const std::string& option) {
    std::string name(environment_prefix);
    std::ranges::transform(option, std::back_inserter(name), [](char c) {
        if (c == '-') {
            return '_';
        }
        return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return name;
}

void add_variable(std::string_view variable, Sources& sources) {
    const auto equals = variable.find('=');
    if (!variable.starts_with(environment_prefix) || equals == std::string_view::npos) {
        return;
    }
    const std::string key(variable.substr(0, equals));
    const std::string name = option_name_of(key);
    if (key == config_variable || std::ranges::count(other_variables, key) != 0) {
        return;
    }
    if (!is_public_name(name)) {
        sources.warnings.push_back(key + ": no such option; ignored");
        return;
    }
    const OptionRow* row = find_row(name);
    const bool list = row != nullptr && row->arity == OptionRow::Arity::repeatable;
    const std::string value(variable.substr(equals + 1));
    if (auto texts = list ? split_at_colons(value) : Texts{value}; !texts.empty()) {
        sources.by_name[name] = {.source = key, .texts = std::move(texts)};
    }
}

tl::expected<void, std::string> add_config(std::string_view text, const std::string& name, Sources& sources) {
    const auto table = parse_toml(text, name);
    if (!table) {
        return wrong(table.error());
    }
    for (const auto& [key, value] : *table) {
        const std::string option(key.str());
        const std::string source = name + ": key " + in_quotes(option);
        if (!is_public_name(option)) {
            return wrong(source + ": no such option");
        }
        auto texts = texts_of(value);
        if (!texts) {
            return wrong(source + ": must be a text, a number, true or false, or an array of them");
        }
        sources.by_name[option] = {.source = source, .texts = std::move(*texts)};
    }
    return {};
}

tl::expected<Sources, std::string> read_sources(const std::optional<std::string>& config_file) {
    Sources sources;
    const char* variable = std::getenv(config_variable);
    const auto file = config_file                                ? config_file
                      : variable != nullptr && *variable != '\0' ? std::optional<std::string>(variable)
                                                                 : std::nullopt;
    if (file) {
        const auto text = read_text_file(*file);
        const auto taken = text ? add_config(*text, *file, sources)
                                : wrong((config_file ? "--config " : "COPPER_CONFIG ") + text.error());
        if (!taken) {
            return wrong(taken.error());
        }
    }
    for (char** variable = environ; *variable != nullptr; ++variable) {
        add_variable(*variable, sources);
    }
    return sources;
}

}  // namespace copper
