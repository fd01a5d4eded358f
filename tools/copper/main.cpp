// `copper`: launches, stops and asks the daemons (daemon/). It talks to them only through the control
// protocol.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "daemon/control/version.hpp"
#include "tools/copper/cleanup.hpp"
#include "tools/copper/common.hpp"
#include "tools/copper/environment.hpp"
#include "tools/copper/everywhere.hpp"
#include "tools/copper/words.hpp"

namespace {

using namespace copper::cli;

// `eval "$(copper env)"` sees no exit code: in every shell, "false" makes the eval fail.
int report(const CLI::App& app, const Failure& failure) {
    if (!failure.reason.empty()) {
        say(failure.reason);
    }
    if (app.got_subcommand("env")) {
        std::cout << "false" << std::endl;
    }
    return failure.exit_code;
}

std::string or_rather(std::string_view word, const std::vector<std::string>& known) {
    const auto near = nearest(word, known);
    return near ? "; did you mean " + *near + "?" : std::string();
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
    std::vector<std::string> names;
    for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
    }
    return names;
}

// For arguments that no option or command takes.
std::string why_unexpected(const CLI::App& app) {
    const auto commands = app.get_subcommands();
    const CLI::App& asked = commands.empty() ? app : *commands.front();
    const auto rest = app.remaining(true);
    const auto option =
        std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word.starts_with('-'); });
    const std::string help = "\nTry 'copper " + (commands.empty() ? "" : asked.get_name() + " ") + "--help'.";
    if (option == rest.end()) {
        return (rest.empty() ? "" : rest.front()) + ": unexpected argument" + help;
    }
    std::vector<std::string> known;
    for (const auto* each : asked.get_options()) {
        known.push_back(each->get_name());
    }
    return *option + ": no such option" + or_rather(option->substr(0, option->find('=')), known) + help;
}

// PATH may lead into the mirror (`copper env`). A program must not run out of what it is about to end.
void leave_mirror(char** argv) {
    const auto program = own_program();
    for (const auto& mount : copper_mounts()) {
        if (const auto original = out_of_mirror(mount.point, program)) {
            ::execv(original->c_str(), argv);  // if it fails, go on from the mirror
            return;
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    leave_mirror(argv);
    CLI::App app("Copper: reads a parallel filesystem on one node and broadcasts it to all", "copper");
    app.set_version_flag("--version", copper::version_text("copper"));
    app.require_subcommand(1);
    Action action;
    for (const auto add : {add_launch, add_stop, add_status, add_stats, add_top, add_report, add_logs,
                           add_path, add_env, add_run, add_check, add_doctor, add_prefetch, add_profile}) {
        add(app, action);
    }
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (!words.empty() && (words.front() == "run" || words.front() == "check")) {
        // CLI11 takes "[a,b]" for a list. A NUL at the end prevents that, and execvp(3) does not see it.
        for (auto& word : words) {
            word.append(word.starts_with('[') && word.ends_with(']') ? 1 : 0, '\0');
        }
    }
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    try {
        app.parse(std::move(words));
    } catch (const CLI::Success& asked_for_help) {
        return app.exit(asked_for_help);
    } catch (const CLI::RequiredError& error) {
        // CLI11 reports an unknown command as a missing one.
        const auto others = app.remaining();
        const std::string what = others.empty() ? error.what()
                                                : others.front() + ": no such command" +
                                                      or_rather(others.front(), names_of_commands(app));
        return report(app, {exit_usage, what + "\nTry 'copper --help'."});
    } catch (const CLI::ExtrasError&) {
        return report(app, {exit_usage, why_unexpected(app)});
    } catch (const CLI::ParseError& error) {
        return report(app, {exit_usage,
                            std::string(error.what()) + "\nTry 'copper --help' or 'copper COMMAND --help'."});
    }
    const auto done = action();
    if (!done) {
        return report(app, done.error());
    }
    std::cout.flush();
    return std::cout.good() ? exit_done : report(app, {exit_failed, "cannot write to standard output"});
}
