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
        bool is_lost = false;                 // it was set, but to_text() had no room for that
        bool operator==(const Variable&) const = default;
    };
    std::string mount;
    std::string python_modules;  // as in EnvironmentRequest
    std::vector<Variable> variables = {};
    bool operator==(const Originals&) const = default;
};
// The kernel starts no program with a longer variable: 32 pages of at least 4 KiB (execve(2)), with its name.
inline constexpr std::size_t originals_bytes_max = (std::size_t{128} << 10) - 64;
// As text of one line, for the variable. Loses the longest originals if they would not fit. The reverse
// returns nothing if the text is not whole: it ends with its fingerprint.
std::string to_text(Originals originals);
std::optional<Originals> parse_originals(std::string_view text);

}  // namespace copper::cli
