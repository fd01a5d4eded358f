// What a shell offers when the user presses Tab. The shells' parts are in tools/completion.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

// The scripts call `copper __complete WORD...`.
inline constexpr std::string_view completion_command = "__complete";

// What the last of `words` may become: a line for each candidate, followed by a tab and what it means. If the
// shell knows the candidates, one line tells it so: ":files", ":directories" or, if another command begins
// at words[N], ":command N".
std::string completions(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace copper::cli
