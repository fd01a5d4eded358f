// Reads options from the environment and from a TOML file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace copper {

// The texts from environment and file (the environment wins), for all options of the table and for those that
// only `copper launch` has (launch_option_names). An unknown key in the file is an error. An unknown COPPER_
// variable may belong to somebody's script, so it is a warning.
struct SourcedText {
    std::string source;  // for error messages: "COPPER_DEADLINE", "file.toml: key 'deadline'"
    std::vector<std::string> texts;
};
struct Sources {
    std::map<std::string, SourcedText> by_name;
    std::vector<std::string> warnings;
};
tl::expected<Sources, std::string> read_sources(const std::optional<std::string>& config_file);
// The parts of it: one "NAME=value" of the environment; the text of a file, called `name` in errors.
void add_variable(std::string_view variable, Sources& sources);
tl::expected<void, std::string> add_config(std::string_view text, const std::string& name, Sources& sources);
const std::vector<std::string>& launch_option_names();
// Of an option: "COPPER_DEADLINE".
std::string variable_of(const std::string& option);

}  // namespace copper
