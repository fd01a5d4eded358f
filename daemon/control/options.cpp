#include "daemon/control/options.hpp"

#include <unistd.h>

#include <algorithm>

#include "daemon/control/option_defaults.hpp"
#include "daemon/control/option_values.hpp"
#include "daemon/control/private_directory.hpp"

namespace copper {
namespace {

using Taken = tl::expected<void, std::string>;

Taken take(const OptionRow& row, const SourcedText& text, DaemonOptions& options) {
    if (text.texts.size() != 1 && row.arity == OptionRow::Arity::once) {
        return wrong(text.source + ": given more than once");
    }
    // No path and no program argument can contain a NUL.
    if (std::any_of(text.texts.begin(), text.texts.end(),
                    [](const std::string& each) { return each.find('\0') != std::string::npos; })) {
        return wrong(text.source + ": holds a zero byte");
    }
    const auto taken = row.take(text.texts, options);
    return taken ? taken : wrong(text.source + ": " + taken.error());
}

}  // namespace

tl::expected<DaemonOptions, std::string> resolve_options(const FlagTexts& flags,
                                                         const std::optional<std::string>& config_file) {
    auto sources = read_sources(config_file);
    return sources ? resolve_options(flags, std::move(*sources)) : wrong(sources.error());
}

tl::expected<DaemonOptions, std::string> resolve_options(const FlagTexts& flags, Sources sources) {
    for (const auto& name : launch_option_names()) {
        sources.by_name.erase(name);
    }
    for (const auto& [name, texts] : flags) {
        if (find_row(name) == nullptr) {
            return wrong("--" + name + ": no such option");
        }
        sources.by_name[name] = {.source = "--" + name, .texts = texts};
    }
    if (flags.contains("resolved-tree")) {
        sources.by_name.erase("tree");
    }
    DaemonOptions options;
    options.warnings = std::move(sources.warnings);
    for (const auto& row : option_table()) {
        if (const auto given = sources.by_name.find(row.name); given != sources.by_name.end()) {
            if (const auto taken = take(row, given->second, options); !taken) {
                return wrong(taken.error());
            }
        }
    }
    if (options.mount.empty()) {
        options.mount = canonical_mount(default_mount());
        options.mount_as_given = options.mount;
    }
    if (options.private_directory.empty()) {
        options.private_directory = usual_private_directory(::geteuid());
    }
    if (options.batch_job.empty()) {
        options.batch_job = batch_job_id();
        options.batch_run = batch_job_run();
    }
    if (options.job.empty()) {
        options.job = options.batch_job.empty() ? "local-" + std::to_string(::getpid()) : options.batch_job;
    }
    return options;
}

}  // namespace copper
