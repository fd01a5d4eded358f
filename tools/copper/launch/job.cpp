#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/foreground.hpp"
#include "tools/copper/launch/plan.hpp"
#include "tools/copper/nodes/everywhere.hpp"
#include "tools/copper/nodes/instances.hpp"

namespace copper::cli {

namespace {

using Words = std::vector<std::string>;

struct JobOptions {
    LaunchOptions launch;
    Words launch_words;  // the same
    Words command;
};

Words followed_by(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

Result<void> job(const JobOptions& options) {
    const auto own = own_program();
    // (What these print is no output of the command.)
    Foreground foreground;
    const auto launched = foreground.run(
        {.words = followed_by({own, "launch"}, options.launch_words), .output_to_errors = true});
    if (!launched) {
        return tl::make_unexpected(launched.error());
    }
    if (*launched != 0) {
        return tl::make_unexpected(Failure{shell_exit_code(*launched), ""});
    }
    if (!options.launch.config.empty()) {
        ::setenv("COPPER_CONFIG", options.launch.config.c_str(), 1);
    }
    const auto given = options.launch.flags.find("mount");
    const auto mount = given != options.launch.flags.end() && !given->second.empty()
                           ? Words{"--mount", given->second.front()}
                           : Words();
    // The batch script's node may be none of the job's.
    const bool has_mirror =
        !instances_of_job(mount_named(mount.empty() ? "" : mount.back()).value_or("")).empty();
    const auto run = has_mirror ? followed_by(followed_by({own, "run"}, mount), {"--"}) : Words();
    const auto status = foreground.run({.words = followed_by(run, options.command)});
    for (const char* last : {"stats", "stop"}) {
        foreground.run_to_the_end({.words = followed_by({own, last}, mount), .output_to_errors = true});
    }
    if (!status) {
        return tl::make_unexpected(status.error());
    }
    const int code = shell_exit_code(*status);
    return code == exit_done ? Result<void>() : tl::make_unexpected(Failure{code, ""});
}

}  // namespace

void add_job(CLI::App& app, Action& action) {
    auto options = std::make_shared<JobOptions>();
    auto* command =
        app.add_subcommand("job", "Launch, run a command like 'copper run', print the statistics, and stop");
    add_launch_options(*command, options->launch);
    const auto shared = command->get_options();
    command->add_option("CMD", options->command, "The command and its arguments, after --")->required();
    command->positionals_at_end();  // no word after the command is an option of ours
    command->footer(
        "Exit code: that of the command (128 + N for signal N); that of 'copper launch' if not all nodes\n"
        "serve: then the command does not run. SIGTERM and SIGHUP go to the command. All that Copper prints\n"
        "goes to standard error.\n\n"
        "Examples:\n"
        "  copper job --tree /lustre/sw/conda -- srun copper run python train.py\n"
        "  copper job --tree /lustre/sw/conda -- python train.py    # on one machine");
    command->callback([options, shared, &action] {
        options->launch_words = words_given(shared);
        action = [options] { return job(*options); };
    });
}

}  // namespace copper::cli
