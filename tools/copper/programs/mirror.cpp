#include "tools/copper/programs/mirror.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "base/path.hpp"
#include "tools/copper/nodes/copper_mounts.hpp"
#include "tools/copper/nodes/launch_record.hpp"

namespace copper::cli {

namespace {

// --prefix P as given and, if P leads elsewhere through links, that place.
Result<std::vector<std::string>> places_of(const std::vector<std::string>& prefixes) {
    std::vector<std::string> places;
    for (const auto& prefix : prefixes) {
        const auto resolved = resolve_path(prefix);
        if (!resolved) {
            return misused("--prefix " + prefix + ": no such file or directory");
        }
        places.push_back(*resolved);
    }
    return places;
}

}  // namespace

CLI::Option* add_mount_option(CLI::App& command, std::string& mount) {
    return command.add_option("--mount", mount, "The mount that names the job (default /tmp/$USER/copper)")
        ->type_name("DIR");
}

void add_mirror_options(CLI::App& command, MirrorOptions& options) {
    add_mount_option(command, options.mount);
    command
        .add_option("--node", options.node,
                    "Which node's mount, if several nodes share this machine (--local)")
        ->type_name("RANK");
}

void add_environment_options(CLI::App& command, MirrorOptions& options) {
    add_mirror_options(command, options);
    command
        .add_option("--prefix", options.prefixes,
                    "Send paths below PATH through the mount (repeatable; default: the mirrored trees)")
        ->type_name("PATH")
        ->allow_extra_args(false)
        ->expected(1, CLI::detail::expected_max_vector_size);
    command.add_flag(
        "--no-python-modules", options.no_python_modules,
        "Leave out the sitecustomize module. It saves a request for each module that Python imports again, "
        "and leads Pythons into the mount that start outside");
    command.add_flag(
        "--pycache-prefix", options.pycache_prefix,
        "Let Python compile into node-local scratch (PYTHONPYCACHEPREFIX). It then ignores the tree's "
        "compiled files, so a first import is slow");
}

std::optional<std::string> read_variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> resolve_path(const std::string& path) {
    std::error_code error;
    auto resolved = std::filesystem::canonical(path, error);
    return error ? std::nullopt : std::optional(resolved.string());
}

std::optional<std::string> resolve_up_to(const Mirror& mirror, const std::string& path) {
    namespace fs = std::filesystem;
    constexpr int links_max = 40;  // MAXSYMLINKS of Linux
    std::error_code error;
    fs::path place = "/";
    fs::path rest = fs::path(path).relative_path();
    for (int links = 0; !rest.empty();) {
        auto whole = normalise_path((place / rest).string());
        if (whole && lies_in_trees(mirror, *whole)) {
            return whole;
        }
        fs::path below;
        std::for_each(std::next(rest.begin()), rest.end(), [&](const fs::path& name) { below /= name; });
        const fs::path name = *rest.begin();
        const bool stays = name.empty() || name == ".";
        const auto next = stays ? place : name == ".." ? place.parent_path() : place / name;
        const auto status = fs::symlink_status(next, error);
        if (!fs::exists(status)) {
            return std::nullopt;
        }
        if (!fs::is_symlink(status)) {
            place = next;
            rest = below;
            continue;
        }
        const auto target = fs::read_symlink(next, error);
        if (error || ++links > links_max) {
            return std::nullopt;
        }
        rest = target.relative_path() / below;
        place = target.is_absolute() ? "/" : place;
    }
    return place.string();
}

namespace {

bool is_named(const InstanceRecord& record, const std::string& mount, std::uint32_t node) {
    return record.mount == mount || record.mount == local_mount(mount, node);
}

}  // namespace

bool is_without_mirror(const std::string& mount, std::uint32_t node) {
    const auto named = mount_named(mount);
    const auto found = named ? instances_of_job(*named) : std::vector<Found>();
    return std::ranges::any_of(found, [&](const Found& each) {
        const auto& record = each.record;
        return record.without_mirror && check_job(record) && is_named(record, *named, node);
    });
}

Result<InstanceRecord> running_instance(const MirrorOptions& options, const Needy& command) {
    const auto mount = mount_named(options.mount);
    if (!mount) {
        return tl::make_unexpected(mount.error());
    }
    const auto found = instances_of_job(*mount);
    for (const auto& [directory, record] : found) {
        if (!is_named(record, *mount, options.node)) {
            continue;
        }
        if (record.without_mirror) {
            const auto checked = check_job(record);
            return checked ? no_mirror_here(record.mount, command) : tl::make_unexpected(checked.error());
        }
        if (!is_running(record)) {
            return failed(record.mount + ": its daemon is gone (clear the mount with " +
                          stop_command(*mount) + ")");
        }
        if (auto checked = check_job(record); !checked) {
            return tl::make_unexpected(std::move(checked.error()));
        }
        return record;
    }
    if (!found.empty()) {
        return misused("--node " + std::to_string(options.node) + ": " + *mount +
                       " has no such node on this machine");
    }
    return no_daemon_here(*mount, command);
}

Result<MirrorEnvironment> mirror_environment(const MirrorOptions& options, const Needy& command,
                                             Paths paths) {
    auto instance = running_instance(options, command);
    if (!instance) {
        return tl::make_unexpected(instance.error());
    }
    tell_if_unknown(*instance);
    auto trees = paths == Paths::keep       ? Result<std::vector<std::string>>()
                 : options.prefixes.empty() ? Result<std::vector<std::string>>(instance->trees)
                                            : places_of(options.prefixes);
    if (!trees) {
        return tl::make_unexpected(trees.error());
    }
    MirrorEnvironment environment;
    const auto python_modules =
        options.no_python_modules ? std::string() : python_module_directory(::getuid(), instance->mount);
    environment.mirror = {.mount = instance->mount, .trees = std::move(*trees), .mounts = {}};
    for (const auto& other : copper_mounts()) {
        environment.mirror.mounts.push_back(other.point);
    }
    environment.changes = mirrored_environment(
        {.mirror = environment.mirror,
         .scratch = scratch_directory(::getuid(), instance->mount),
         .python_bytecode_in_scratch = options.pycache_prefix,
         .python_modules = python_modules},
        read_variable, [&](const std::string& path) { return resolve_up_to(environment.mirror, path); });
    environment.leads_into_mirror = leads_into(environment.mirror, environment.changes, read_variable);
    return environment;
}

}  // namespace copper::cli
