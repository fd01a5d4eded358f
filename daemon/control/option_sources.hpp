// Where the texts of options come from, besides flags: the environment and a TOML file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace copper {

// What environment and file say (the environment wins), for all options of the table and those of `copper
// launch` alone (launch_option_names). An unknown key of the file is an error; an unknown COPPER_ variable,
// which may belong to someone's script, is a warning.
struct SourcedText {
    std::string source;  // "COPPER_DEADLINE", "file.toml: key 'deadline'", for error messages
    std::vector<std::string> texts;
};
struct Sources {
    std::map<std::string, SourcedText> by_name;
    std::vector<std::string> warnings;
};
tl::expected<Sources, std::string> read_sources(const std::optional<std::string>& config_file);
// Its parts: one "NAME=value" of the environment; the text of a file, which `name` stands for in errors.
void add_variable(std::string_view variable, Sources& sources);
tl::expected<void, std::string> add_config(std::string_view text, const std::string& name, Sources& sources);
const std::vector<std::string>& launch_option_names();

}  // namespace copper
