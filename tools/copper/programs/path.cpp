#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "base/path.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/programs/mirror.hpp"

namespace copper::cli {

namespace {

struct PathOptions {
    MirrorOptions mirror;
    std::string path;
    bool real = false;
};

// Absolute and without "..". Behind a symbolic link, ".." leads elsewhere than its text says.
Result<std::string> absolute_path(const std::string& text) {
    std::error_code error;
    const auto absolute = std::filesystem::absolute(text, error).string();
    auto place = error ? std::nullopt : normalise_path(absolute);
    if (!place && !error) {
        place = resolve_path(absolute);
    }
    if (!place) {
        return failed(text + ": no such path");
    }
    return std::move(*place);
}

Result<void> print_path(const PathOptions& options) {
    const auto instance = running_instance(options.mirror);
    if (!instance) {
        return tl::make_unexpected(instance.error());
    }
    const std::string& mount = instance->mount;
    if (options.path.empty()) {
        return misused("an empty path");
    }
    const auto place = absolute_path(options.path);
    if (!place) {
        return tl::make_unexpected(place.error());
    }
    const auto outside = out_of_mirror(mount, *place);
    if (options.real) {
        if (!outside) {
            return failed(*place + ": not under the mount " + mount);
        }
        std::cout << *outside << "\n";
        return {};
    }
    // A path under the mount stays as it is.
    std::cout << (outside ? *place : mount + *place) << "\n";
    return {};
}

}  // namespace

void add_path(CLI::App& app, Action& action) {
    auto options = std::make_shared<PathOptions>();
    auto* command = app.add_subcommand("path", "Print a path's place under the mount, or the other way");
    add_mirror_options(*command, options->mirror);
    command->add_flag("--real", options->real,
                      "The other way: from a place under the mount to the path itself");
    command->add_option("PATH", options->path, "The path")->required();
    command->footer(
        "Examples:\n  copper path /lustre/sw/conda\n  copper path --real /tmp/$USER/copper/lustre/sw/conda");
    command->callback([options, &action] { action = [options] { return print_path(*options); }; });
}

}  // namespace copper::cli
