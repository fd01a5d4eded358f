#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "base/error_text.hpp"
#include "daemon/control/profile_files.hpp"
#include "profile/profile_file.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/failure.hpp"
#include "tools/copper/common/table.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/look/stored_profiles.hpp"

namespace copper::cli {

namespace {

namespace fs = std::filesystem;

// Names of `copper profile list`, or paths.
Result<std::string> find_profile(const std::string& name) {
    for (const std::string& path :
         {name, profiles_directory() + "/" + name, profiles_directory() + "/" + name + profile_suffix}) {
        std::error_code error;
        if (fs::is_regular_file(path, error)) {
            return path;
        }
    }
    return failed(name + ": no such profile ('copper profile list' names them)");
}

Result<void> list() {
    std::error_code error;
    const auto files = stored_profiles(error);
    if (error && error != std::errc::no_such_file_or_directory) {
        return failed(profiles_directory() + ": " + error.message());
    }
    std::vector<std::vector<std::string>> rows = {{"NAME", "RUNS", "USES", "BYTES", "TREES"}};
    for (const auto& file : files) {
        const auto profile = read_profile(file);
        const auto bytes = fs::file_size(file, error);
        rows.push_back({fs::path(file).stem(), profile ? std::to_string(profile->runs) : "-",
                        profile ? std::to_string(profile->uses.size()) : "-", std::to_string(bytes),
                        profile ? joined(profile->trees, " ") : profile.error()});
    }
    std::cout << table(rows);
    return {};
}

Result<void> show(const std::string& name) {
    const auto file = find_profile(name);
    const auto profile = file.and_then([](const std::string& path) -> Result<Profile> {
        auto read = read_profile(path);
        return read ? Result<Profile>(std::move(*read)) : Result<Profile>(failed(read.error()));
    });
    if (!profile) {
        return tl::make_unexpected(profile.error());
    }
    std::cout << *file << ": " << profile->runs << " runs, the last one with " << profile->nodes_asked
              << " nodes asked, trees " << joined(profile->trees, " ") << "\n";
    std::vector<std::vector<std::string>> rows = {{"FIRST/ms", "NODES", "MISSED", "OBJECT"}};
    for (const auto& use : profile->uses) {
        rows.push_back({std::to_string(use.first_used.count()), std::to_string(use.nodes),
                        std::to_string(use.runs_missed), to_string(use.key)});
    }
    std::cout << table(rows);
    return {};
}

Result<void> remove(const std::vector<std::string>& names) {
    for (const auto& name : names) {
        const auto file = find_profile(name);
        if (!file) {
            return tl::make_unexpected(file.error());
        }
        if (::unlink(file->c_str()) != 0) {
            return failed(*file + ": " + error_text());
        }
    }
    return {};
}

}  // namespace

std::vector<std::string> stored_profiles(std::error_code& error) {
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(profiles_directory(), error)) {
        if (file.path().extension() == profile_suffix) {
            files.push_back(file.path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

void add_profile(CLI::App& app, Action& action) {
    auto names = std::make_shared<std::vector<std::string>>();
    auto* command = app.add_subcommand(
        "profile",
        "List, show or remove profiles: records of what jobs used, which the next job of the same name "
        "fetches ahead");
    command->require_subcommand(1);
    command->footer("Examples:\n  copper profile list\n  copper profile show NAME");
    auto* listed = command->add_subcommand("list", "List this user's profiles");
    listed->footer("Example:\n  copper profile list");
    listed->callback([&action] { action = list; });
    auto* shown = command->add_subcommand("show", "Show what a profile holds, in order of first use");
    auto name = std::make_shared<std::string>();
    shown->add_option("NAME", *name, "A name of the list, or a file")->required();
    shown->footer("Example:\n  copper profile show NAME");
    shown->callback([name, &action] { action = [name] { return show(*name); }; });
    auto* removed = command->add_subcommand("remove", "Remove profiles: the next job records anew");
    removed->add_option("NAME", *names, "Names of the list, or files")->required();
    removed->footer("Example:\n  copper profile remove NAME");
    removed->callback([names, &action] { action = [names] { return remove(*names); }; });
}

}  // namespace copper::cli
