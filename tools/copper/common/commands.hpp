// The command line as a whole. main() parses with it; help, manual pages and completion describe it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/common/failure.hpp"

namespace copper::cli {

// main() runs this after parsing the command line.
using Action = std::function<Result<void>()>;

// One function per command. It adds the command's options to `app`, and sets `action` if the user chose the
// command.
void add_launch(CLI::App& app, Action& action);
void add_stop(CLI::App& app, Action& action);
void add_status(CLI::App& app, Action& action);
void add_stats(CLI::App& app, Action& action);
void add_top(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_logs(CLI::App& app, Action& action);
void add_path(CLI::App& app, Action& action);
void add_env(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_job(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_prefetch(CLI::App& app, Action& action);
void add_refresh(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);

struct LaunchOptions;
// Those with which `command` launches daemons.
void add_launch_options(CLI::App& command, LaunchOptions& options);

// Adds all commands to `app`, which must be empty.
void add_commands(CLI::App& app, Action& action);

// Those that --help lists.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<const CLI::Option*> options_of(const CLI::App& command);
std::vector<const CLI::Option*> positionals_of(const CLI::App& command);

// Null if there is none.
const CLI::App* find_command(const CLI::App& app, std::string_view name);

// "; did you mean NAME?" if one of `known` is near.
std::string or_rather(std::string_view word, const std::vector<std::string>& known);
std::vector<std::string> names_of_commands(const CLI::App& app);

// What the user gave for these options, as words for another command that has the same ones.
std::vector<std::string> words_given(const std::vector<CLI::Option*>& options);

// What --help shows for the value: "DIR", "auto|off|lz4"; "" for a switch.
std::string argument_of(const CLI::Option& option);

// With a line break instead of a blank where a line would be longer than `width`.
std::string wrapped(std::string_view text, std::size_t width);

}  // namespace copper::cli
