#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/programs/mirror.hpp"
#include "tools/copper/programs/originals.hpp"

namespace copper::cli {

namespace {

const std::map<std::string, Shell> shells = {{"sh", Shell::posix},  {"bash", Shell::posix},
                                             {"zsh", Shell::posix}, {"fish", Shell::fish},
                                             {"csh", Shell::csh},   {"slurm", Shell::slurm}};

struct EnvOptions {
    MirrorOptions mirror;
    std::string shell = "sh";
    bool unset = false;
};

Result<Changes> undo() {
    auto [changes, lost, is_damaged] = unmirrored_environment(read_variable);
    if (is_damaged) {
        return failed(
            std::string(originals_variable) +
            " is not as 'copper env' has set it (cut off, or changed), so nothing is undone: start a "
            "new shell, or set " +
            rewritten_variables() + " yourself");
    }
    if (changes.empty()) {
        say("there is nothing to undo: no 'copper env' has changed this environment");
    }
    for (const auto& name : lost) {
        say("warning: the original value of " + name +
            " was too long to keep: only what leads into the mirror is taken out of it");
    }
    return std::move(changes);
}

Result<Changes> changes(const EnvOptions& options) {
    if (options.unset) {
        return undo();
    }
    return mirror_environment(options.mirror).map([](const MirrorEnvironment& environment) {
        if (!environment.leads_into_mirror) {
            say("warning: programs will not use the mirror: nothing of " + rewritten_variables() +
                " lies in a mirrored tree (" + joined(environment.mirror.trees, ", ") +
                "). Activate your environment before 'copper env'");
        }
        for (const auto& name : lost_by(environment.changes)) {
            say("warning: the value of " + name +
                " is too long to keep: 'copper env --unset' will only take out of it what leads into the "
                "mirror");
        }
        return environment.changes;
    });
}

}  // namespace

void add_env(CLI::App& app, Action& action) {
    auto options = std::make_shared<EnvOptions>();
    auto* command = app.add_subcommand(
        "env",
        "Print shell lines that send PATH, PYTHONPATH, ... through the mount. Start console scripts "
        "(torchrun) with 'copper run'");
    add_environment_options(*command, options->mirror);
    command
        ->add_option("--shell", options->shell, "Whose lines to print (default sh; slurm: for a TaskProlog)")
        ->type_name("bash|zsh|fish|csh|slurm")
        ->check(CLI::IsMember(shells));
    command
        ->add_flag(
            "--unset", options->unset,
            "Print what gives these variables back the values that they had; also after 'copper stop', and "
            "without the other options")
        ->excludes(command->get_option("--prefix"));
    command->footer(
        "Examples:\n"
        "  eval \"$(copper env)\"\n"
        "  copper env --shell fish | source        # in fish\n"
        "  eval \"`copper env --shell csh`\"        # in csh\n"
        "  eval \"$(copper env --unset)\"");
    command->callback([options, &action] {
        action = [options]() -> Result<void> {
            return changes(*options).map(
                [&](const Changes& found) { std::cout << shell_lines(shells.at(options->shell), found); });
        };
    });
}

}  // namespace copper::cli
