#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/copper/mirror.hpp"

namespace copper::cli {

void add_env(CLI::App& app, Action& action) {
    auto options = std::make_shared<MirrorOptions>();
    auto* command = app.add_subcommand(
        "env", "Print shell lines that send PATH, PYTHONPATH, ... through the mount: eval \"$(copper env)\"");
    add_environment_options(*command, *options);
    command->callback([options, &action] {
        action = [options]() -> Result<void> {
            const auto environment = mirror_environment(*options);
            if (!environment) {
                return tl::make_unexpected(environment.error());
            }
            std::cout << shell_exports(environment->variables);
            return {};
        };
    });
}

}  // namespace copper::cli
