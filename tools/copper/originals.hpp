// What the variables were before `copper env` changed them. It stays in the environment, in one variable, so
// that `copper env --unset` needs neither a running mirror nor the options that `copper env` was given.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

inline constexpr const char* originals_variable = "COPPER_ORIGINALS";

struct Originals {
    struct Variable {
        std::string name;
        std::string fingerprint;              // of the value that it was given (fingerprint_of())
        std::optional<std::string> original;  // nothing: it was not set
        bool operator==(const Variable&) const = default;
    };
    std::string mount;
    std::string python_modules;  // as in EnvironmentRequest
    std::vector<Variable> variables = {};
    bool operator==(const Originals&) const = default;
};
// As text of one line, for the variable. The reverse returns nothing if to_text() cannot have made it.
std::string to_text(const Originals& originals);
std::optional<Originals> parse_originals(std::string_view text);

}  // namespace copper::cli
