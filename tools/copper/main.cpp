// `copper`: launches, stops and asks the daemons (daemon/). It talks to them only through the control
// protocol.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "daemon/control/version.hpp"
#include "tools/copper/cleanup.hpp"
#include "tools/copper/common.hpp"
#include "tools/copper/environment.hpp"
#include "tools/copper/everywhere.hpp"

namespace {

using namespace copper::cli;

// `eval "$(copper env)"` sees no exit code: in every shell, "false" makes the eval fail.
int report(const CLI::App& app, const Failure& failure) {
    say(failure.reason);
    if (app.got_subcommand("env")) {
        std::cout << "false" << std::endl;
    }
    return failure.exit_code;
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
    for (const auto add : {add_launch, add_stop, add_status, add_stats, add_path, add_env, add_run,
                           add_prefetch, add_profile}) {
        add(app, action);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked_for_help) {
        return app.exit(asked_for_help);
    } catch (const CLI::RequiredError& error) {
        // CLI11 reports an unknown command as a missing one.
        const auto others = app.remaining();
        const std::string what = others.empty() ? error.what() : others.front() + ": no such command";
        return report(app, {exit_usage, what + "\nTry 'copper --help'."});
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
