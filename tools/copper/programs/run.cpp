#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "base/error_text.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/programs/interpreter.hpp"
#include "tools/copper/programs/mirror.hpp"
#include "tools/copper/programs/view.hpp"

namespace copper::cli {

namespace {

struct RunOptions {
    MirrorOptions mirror;
    ViewChoice view = ViewChoice::automatic;
};

const std::map<std::string, ViewChoice> views = {
    {"auto", ViewChoice::automatic}, {"bind", ViewChoice::bind}, {"paths", ViewChoice::paths}};

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
void mirror_standard_library(const Mirror& mirror, const std::vector<std::string>& command,
                             const ResolvePath& resolve) {
    const auto program = find_program(command.front());
    const auto modules = read_variable("PYTHONPATH");
    if (!program || !base_name(*program).starts_with("python") || !runs_our_module(command) || !modules ||
        read_variable("PYTHONHOME")) {
        return;
    }
    if (const auto library = mirrored_standard_library(mirror, *program, resolve)) {
        set("COPPER_PYTHONPATH", *modules);
        set("PYTHONPATH", *modules + ":" + *library);
    }
}

void apply(const Changes& changes) {
    for (const auto& [name, value] : changes) {
        if (value) {
            set(name, *value);
        } else {
            ::unsetenv(name.c_str());
        }
    }
}

// Does not return if the command starts.
Result<void> start(std::vector<std::string> command) {
    std::vector<char*> arguments;
    arguments.reserve(command.size() + 1);
    for (auto& word : command) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    return tl::make_unexpected(Failure{exit_cannot_start, command.front() + ": " + error_text()});
}

// Whether this process now sees the mirror at the original paths.
Result<bool> enter_view(const RunOptions& options, const std::string& command) {
    if (options.view == ViewChoice::paths) {
        return false;
    }
    const auto instance = running_instance(options.mirror);
    if (!instance) {
        return tl::make_unexpected(instance.error());
    }
    if (is_in_view(instance->mount, instance->trees)) {
        return true;
    }
    auto why = options.view == ViewChoice::automatic ? why_paths(*instance, command) : "";
    if (!options.mirror.prefixes.empty()) {
        why = "it has all trees, so --prefix cannot choose";
    }
    if (why.empty()) {
        const auto view = find_view(*instance);
        if (view) {
            return join(*view).map([] { return true; }).map_error([](const std::string& error) {
                return Failure{exit_failed, error};
            });
        }
        why = view.error();
    }
    return options.view == ViewChoice::bind ? Result<bool>(lacking("no view on this node: " + why)) : false;
}

// Does not return if the command starts.
Result<void> become(const RunOptions& run, std::vector<std::string> command) {
    const auto& options = run.mirror;
    if (is_without_mirror(options.mount, options.node)) {
        if (is_first_of_node()) {
            say("this node has no mirror (--allow-missing): " + command.front() +
                " reads the filesystem itself");
        }
        return find_program(command.front()) ? start(std::move(command)) : not_found(command.front());
    }
    const auto in_view = enter_view(run, command.front());
    if (!in_view) {
        return tl::make_unexpected(in_view.error());
    }
    const auto environment = mirror_environment(options, run_command, *in_view ? Paths::keep : Paths::change);
    if (!environment) {
        return tl::make_unexpected(environment.error());
    }
    apply(environment->changes);
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
        mirror_standard_library(mirror, command, resolve);
    }
    return start(std::move(command));
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
    auto options = std::make_shared<RunOptions>();
    auto words = std::make_shared<std::vector<std::string>>();
    auto* command = app.add_subcommand(
        "run",
        "Run a command that reads the trees through the mirror, at their own paths where the node allows it");
    add_environment_options(*command, options->mirror);
    command
        ->add_option(
            "--view", options->view,
            "bind: the mirror lies over the original paths, for this command. paths: PATH, PYTHONPATH, "
            "... lead into the mount instead. auto (default): bind, where the node allows it and "
            "the trees were chosen and hold neither the working directory nor $HOME, for commands that do "
            "not start programs elsewhere, like srun")
        ->type_name("auto|bind|paths")
        ->transform(CLI::CheckedTransformer(views).description(""));
    command->add_option("CMD", *words, "The command and its arguments")->required();
    command->positionals_at_end();  // no word after the command is an option of ours
    command->footer(
        "Examples:\n  srun copper run torchrun train.py\n  copper run --node 1 python3 -c 'import numpy'");
    command->callback([options, words, &action] { action = [=] { return become(*options, *words); }; });
}

}  // namespace copper::cli
