// `copper`: launches, stops and asks the daemons (daemon/). It talks to them only through the control
// protocol.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "tools/copper/common/commands.hpp"
#include "tools/copper/completion.hpp"
#include "tools/copper/launch/lease.hpp"
#include "tools/copper/launch/without_mirror.hpp"
#include "tools/copper/misuse.hpp"
#include "tools/copper/nodes/batch_jobs.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/remote_shell.hpp"
#include "tools/copper/programs/environment.hpp"
#include "tools/copper/programs/view.hpp"

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

// Without one, the next file that is opened would take its place. Writing to standard output then fails, as
// to a closed one; what goes to standard error is lost.
void open_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(stream, F_GETFD) == -1) {
            ::open("/dev/null",
                   stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // the lowest one that is free
        }
    }
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
    open_standard_streams();
    leave_mirror(argv);
    CLI::App app;
    Action action;
    add_commands(app, action);
    if (argc > 1 && argv[1] == completion_command) {
        std::cout << completions(app, {argv + 2, argv + argc});
        return exit_done;
    }
    if (argc > 3 && argv[1] == if_over_command) {
        if (!is_over(argv[2])) {
            return exit_done;
        }
        argv += 2;
        argc -= 2;
    }
    if (argc > 1 && argv[1] == remote_shell_command) {
        return run_remote_shell({argv + 2, argv + argc});
    }
    if (argc > 1 && argv[1] == places_command) {
        return print_places();
    }
    if (argc == 3 && argv[1] == without_mirror_command) {
        return run_without_mirror(argv[2]);
    }
    check_values(app);
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (!words.empty() && (words.front() == "run" || words.front() == "check" || words.front() == "job")) {
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
    } catch (const CLI::ParseError& error) {
        return report(app, misuse(app, error));
    }
    enter_flux_job();
    const auto done = action();
    if (!done) {
        return report(app, done.error());
    }
    std::cout.flush();
    return std::cout.good() ? exit_done : report(app, {exit_failed, "cannot write to standard output"});
}
