// What is wrong with a command line, in words that name the option.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/copper/common/failure.hpp"

namespace copper::cli {

// After all commands were added: makes every option refuse the name of another option as its value.
void check_values(CLI::App& app);

Failure misuse(const CLI::App& app, const CLI::ParseError& error);

}  // namespace copper::cli
