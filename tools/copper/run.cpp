#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>

#include "base/error_text.hpp"
#include "tools/copper/mirror.hpp"

namespace copper::cli {

namespace {

// Does not return if the command starts.
Result<void> become(const MirrorOptions& options, std::vector<std::string> command) {
    const auto environment = mirror_environment(options);
    if (!environment) {
        return tl::make_unexpected(environment.error());
    }
    for (const auto& [name, value] : environment->variables) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    // A command given by its path goes through the mount, like one found in PATH.
    command.front() =
        through_mirror(environment->mirror, command.front(), resolve_path).value_or(command.front());
    std::vector<char*> arguments;
    for (auto& word : command) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    return failed(command.front() + ": " + error_text());
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
    auto options = std::make_shared<MirrorOptions>();
    auto words = std::make_shared<std::vector<std::string>>();
    auto* command = app.add_subcommand("run", "Run a command through the mount: copper run CMD...");
    add_environment_options(*command, *options);
    command->add_option("CMD", *words, "The command and its arguments")->required();
    command->positionals_at_end();  // no word after the command is an option of ours
    command->callback([options, words, &action] { action = [=] { return become(*options, *words); }; });
}

}  // namespace copper::cli
