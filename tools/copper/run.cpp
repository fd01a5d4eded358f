#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error_text.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "tools/copper/commands.hpp"
#include "tools/copper/interpreter.hpp"
#include "tools/copper/mirror.hpp"

namespace copper::cli {

namespace {

void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
}

// Whether a Python with these arguments runs our sitecustomize module: not with -E, -I or -S, which may stand
// together with other letters, or behind -W or -X and its value.
bool runs_our_module(const std::vector<std::string>& command) {
    return std::none_of(
        command.begin() + 1,
        std::find_if_not(command.begin() + 1, command.end(),
                         [](const std::string& word) { return word.starts_with('-'); }),
        [](const std::string& option) { return option.find_first_of("EISWX") != std::string::npos; });
}

// The Python of a virtual environment reads the standard library that pyvenv.cfg names. PYTHONPATH comes
// before it, and the sitecustomize module restores PYTHONPATH for further processes. (PYTHONHOME would not
// do: with it, Python 3.14 does not find the environment's packages.)
void mirror_standard_library(const Mirror& mirror, const std::vector<std::string>& command) {
    const auto program = find_program(command.front());
    const auto modules = read_variable("PYTHONPATH");
    if (!program || !base_name(*program).starts_with("python") || !runs_our_module(command) || !modules ||
        read_variable("PYTHONHOME")) {
        return;
    }
    if (const auto library = mirrored_standard_library(mirror, *program, resolve_path)) {
        set("COPPER_PYTHONPATH", *modules);
        set("PYTHONPATH", *modules + ":" + *library);
    }
}

// Does not return if the command starts.
Result<void> become(const MirrorOptions& options, std::vector<std::string> command) {
    const auto environment = mirror_environment(options);
    if (!environment) {
        return tl::make_unexpected(environment.error());
    }
    for (const auto& [name, value] : environment->changes) {
        if (value) {
            set(name, *value);
        } else {
            ::unsetenv(name.c_str());
        }
    }
    const auto& mirror = environment->mirror;
    const auto resolve = [&mirror](const std::string& path) { return resolve_up_to(mirror, path); };
    // A command given by its path goes through the mount, like one found in PATH.
    command.front() = program_through_mirror(mirror, command.front(), resolve).value_or(command.front());
    const auto program = find_program(command.front());
    if (!program) {
        return not_found(command.front());
    }
    command = with_mirrored_interpreter(mirror, *program, std::move(command), resolve);
    if (!options.no_python_modules) {
        mirror_standard_library(mirror, command);
    }
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (auto& word : command) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    return tl::make_unexpected(Failure{exit_cannot_start, command.front() + ": " + error_text()});
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
    auto options = std::make_shared<MirrorOptions>();
    auto words = std::make_shared<std::vector<std::string>>();
    auto* command = app.add_subcommand(
        "run",
        "Run a command through the mount. Starts a script with the mirrored interpreter, also if its "
        "first line names the original one");
    add_environment_options(*command, *options);
    command->add_option("CMD", *words, "The command and its arguments")->required();
    command->positionals_at_end();  // no word after the command is an option of ours
    command->footer(
        "Examples:\n  srun copper run torchrun train.py\n  copper run --node 1 python3 -c 'import numpy'");
    command->callback([options, words, &action] { action = [=] { return become(*options, *words); }; });
}

}  // namespace copper::cli
