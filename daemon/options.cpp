#include "daemon/options.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "cache/mount_table.hpp"
#include "cache/path.hpp"
#include "daemon/memory_limit.hpp"

namespace copper {
namespace {

using Texts = std::vector<std::string>;
using Taken = tl::expected<void, std::string>;
using std::chrono::milliseconds;

constexpr std::string_view environment_prefix = "COPPER_";
constexpr const char* config_variable = "COPPER_CONFIG";
constexpr std::uint64_t cache_bytes_min = 16U << 20;
constexpr std::uint64_t memory_share_default = 4;  // a quarter
constexpr std::uint32_t readers_max = 1U << 20;
constexpr std::uint32_t arity_max = 64;
constexpr double deadline_seconds_min = 0.01;
constexpr double deadline_seconds_max = 3600;
constexpr double ready_timeout_seconds_max = 86400;
constexpr std::size_t job_bytes_max = 256;
constexpr std::array passthrough_names = {"off", "auto"};         // as in bool
constexpr std::array push_names = {"auto", "always", "never"};    // as in Push
constexpr std::array compression_names = {"auto", "off", "lz4"};  // as in Compression
constexpr std::array level_names = {"none", "fatal", "error", "warning", "info", "debug"};

tl::unexpected<std::string> wrong(std::string what) {
    return tl::make_unexpected(std::move(what));
}

std::string in_quotes(std::string_view text) {
    return "'" + std::string(text) + "'";
}

tl::expected<std::uint32_t, std::string> parse_count(const std::string& text, std::uint32_t max) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > max) {
        return wrong(in_quotes(text) + " is not a whole number from 1 to " + std::to_string(max));
    }
    return value;
}

struct SecondsRange {
    double min;
    double max;
};

tl::expected<milliseconds, std::string> parse_seconds(const std::string& text, SecondsRange range) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Written so that "nan" is refused too.
    if (error != std::errc() || end != text.data() + text.size() ||
        !(value >= range.min && value <= range.max)) {
        std::ostringstream message;
        message << in_quotes(text) << " is not a number of seconds from " << range.min << " to " << range.max;
        return wrong(message.str());
    }
    return milliseconds(std::llround(value * 1000));
}

tl::expected<bool, std::string> parse_switch(const std::string& text) {
    if (text == "true" || text == "1" || text == "yes" || text == "on") {
        return true;
    }
    if (text == "false" || text == "0" || text == "no" || text == "off") {
        return false;
    }
    return wrong(in_quotes(text) + " is neither true nor false");
}

// Of values that are numbered like their names.
template <typename T, std::size_t count>
tl::expected<T, std::string> parse_name(const std::string& text, const std::array<const char*, count>& names,
                                        const char* complaint) {
    const auto name = std::find(names.begin(), names.end(), text);
    if (name == names.end()) {
        return wrong(in_quotes(text) + complaint);
    }
    return static_cast<T>(name - names.begin());
}

// Assigns a parsed value, or passes the error on.
template <typename T, typename Parsed>
Taken assign(T& to, const Parsed& parsed) {
    if (!parsed) {
        return wrong(parsed.error());
    }
    to = *parsed;
    return {};
}

std::string in_mebibytes(std::uint64_t bytes) {
    return std::to_string(bytes >> 20U) + "M";
}

Taken take_cache_bytes(const Texts& texts, DaemonOptions& options) {
    const auto size = parse_size(texts.front());
    if (!size) {
        return wrong(size.error());
    }
    if (*size != 0 && *size < cache_bytes_min) {
        return wrong(in_quotes(texts.front()) + " is too small: a cache needs at least " +
                     in_mebibytes(cache_bytes_min));
    }
    options.cache_bytes = *size;
    return {};
}

Taken take_log_level(const Texts& texts, DaemonOptions& options) {
    const std::string& text = texts.front();
    for (std::size_t level = 0; level < level_names.size(); ++level) {
        if (text == level_names[level] || text == std::to_string(level)) {
            options.log_level = static_cast<LogLevel>(level);
            return {};
        }
    }
    return wrong(in_quotes(text) +
                 " is not a log level; they are none, fatal, error, warning, info, debug, or 0 to 5");
}

// Only its text: whether it can be a mount point is checked by the daemon, on each node.
Taken take_mount(const Texts& texts, DaemonOptions& options) {
    if (texts.front().empty()) {
        return wrong("an empty path");
    }
    options.mount = canonical_mount(texts.front());
    return {};
}

tl::expected<std::string, std::string> canonical_tree(const std::string& text) {
    std::error_code error;
    // A path inside Copper is looked at by its mount table entry first: to resolve it could block on a dead
    // daemon.
    const std::string absolute = std::filesystem::absolute(text, error).lexically_normal();
    if (error || text.empty()) {
        return wrong(in_quotes(text) + " is not a path");
    }
    const std::string resolved = std::filesystem::canonical(absolute, error);
    if (error) {
        return wrong(text + ": " + error.message());
    }
    struct stat found = {};
    if (::stat(resolved.c_str(), &found) != 0) {
        return wrong(text + ": " + std::generic_category().message(errno));
    }
    if (!S_ISDIR(found.st_mode)) {
        return wrong(text + " is not a directory");
    }
    switch (MountTable().walk(resolved)) {
        case MountTable::Walk::copper_mount:
            return wrong(text + " lies inside a Copper mount; give the path on the backing filesystem");
        case MountTable::Walk::kernel_filesystem:
            return wrong(
                text +
                " lies inside a filesystem of the kernel (/proc, /sys, /dev ...), which is not mirrored");
        case MountTable::Walk::allowed:
            break;
    }
    return resolved;
}

// A tree within another one says nothing new.
void drop_nested(std::vector<std::string>& trees) {
    std::sort(trees.begin(), trees.end());
    trees.erase(std::unique(trees.begin(), trees.end()), trees.end());
    const auto all = trees;
    std::erase_if(trees, [&all](const std::string& tree) {
        return std::any_of(all.begin(), all.end(), [&tree](const std::string& other) {
            return other != tree && is_within(tree, other);
        });
    });
}

Taken take_trees(const Texts& texts, DaemonOptions& options) {
    options.trees.clear();
    for (const auto& text : texts) {
        auto tree = canonical_tree(text);
        if (!tree) {
            return wrong(tree.error());
        }
        options.trees.push_back(std::move(*tree));
    }
    drop_nested(options.trees);
    return {};
}

Taken take_cores(const Texts& texts, DaemonOptions& options) {
    const std::string& text = texts.front();
    const bool is_list = !text.empty() && text.find_first_not_of("0123456789,-") == std::string::npos;
    if (text != "auto" && text != "none" && !is_list) {
        return wrong(in_quotes(text) + " is neither auto, none, nor a list of cores such as 0,2-3");
    }
    options.cores = text;
    return {};
}

Taken take_job(const Texts& texts, DaemonOptions& options) {
    if (texts.front().empty() || texts.front().size() > job_bytes_max) {
        return wrong("a job's name has 1 to " + std::to_string(job_bytes_max) + " bytes");
    }
    options.job = texts.front();
    return {};
}

Taken take_log_dir(const Texts& texts, DaemonOptions& options) {
    std::error_code error;
    options.log_dir =
        texts.front().empty() ? "" : std::filesystem::absolute(texts.front(), error).lexically_normal();
    return error ? Taken(wrong(in_quotes(texts.front()) + " is not a path")) : Taken();
}

std::vector<OptionRow> user_rows() {
    return {
        {.name = "mount",
         .argument = "DIR",
         .help = "where the mirror is mounted (default /tmp/$USER/copper)",
         .take = take_mount},
        {.name = "tree",
         .argument = "PATH",
         .help = "a directory tree to mirror cooperatively (default: every shared filesystem mounted)",
         .arity = OptionRow::Arity::repeatable,
         .take = take_trees},
        {.name = "cores",
         .argument = "LIST",
         .help = "cores the daemon runs on: auto (those the job does not use, else any), none, or a list "
                 "such as 0,2-3",
         .take = take_cores},
        {.name = "cache-bytes",
         .argument = "SIZE",
         .help = "memory for cached objects, with suffix K, M, G or T (default 0: a quarter of memory, at "
                 "most 16G; with --local N, an N-th of that quarter)",
         .take = take_cache_bytes},
        {.name = "shared-file-bytes",
         .argument = "SIZE",
         .help =
             "files larger than this are not broadcast: each node reads them for itself (default: no limit)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.shared_file_bytes, parse_size(texts.front()));
             }},
        {.name = "compress",
         .argument = "WHEN",
         .help =
             "send and keep the contents of files in fewer bytes (LZ4): auto (where the network is slower "
             "than that), off, or lz4 (whatever shrinks; default auto)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.compress, parse_name<Compression>(texts.front(), compression_names,
                                                                         " is neither auto, off nor lz4"));
             }},
        {.name = "readers",
         .argument = "K",
         .help = "how many nodes may read the backing filesystem (default 16)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.readers, parse_count(texts.front(), readers_max));
             }},
        {.name = "arity",
         .argument = "K",
         .help = "children of a node in the broadcast trees (default 4)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.arity, parse_count(texts.front(), arity_max));
             }},
        {.name = "push",
         .argument = "WHEN",
         .help = "send what is read to all nodes: auto (large files only once several nodes read them), "
                 "always or "
                 "never (default auto)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.push, parse_name<Push>(texts.front(), push_names,
                                                              " is none of auto, always and never"));
             }},
        {.name = "deadline",
         .argument = "SECONDS",
         .help =
             "how long a node waits for an object before it reads the backing filesystem itself (default 10)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.deadline, parse_seconds(texts.front(), {.min = deadline_seconds_min,
                                                                               .max = deadline_seconds_max}));
             }},
        {.name = "log-dir",
         .argument = "DIR",
         .help = "write logs to DIR/<host>-<pid>-output.log",
         .take = take_log_dir},
        {.name = "log-to-output",
         .argument = "",
         .help = "write logs to the output of what started the daemons, also as long as they run",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.log_to_output, parse_switch(texts.front()));
             }},
        {.name = "log-level",
         .argument = "LEVEL",
         .help = "none, fatal, error, warning, info or debug, or 0 to 5 (default warning)",
         .take = take_log_level},
        {.name = "allow-other",
         .argument = "",
         .help = "let other users see the mirror",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.allow_other, parse_switch(texts.front()));
             }},
        {.name = "passthrough",
         .argument = "WHEN",
         .help =
             "auto: where root mounts, and the kernel and libfuse can, the kernel reads files from 1M on by "
             "itself when they are opened again, and asks at each opening of any file; off (default)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.passthrough, parse_name<bool>(texts.front(), passthrough_names,
                                                                     " is neither auto nor off"));
             }},
        {.name = "no-rewrite-symlinks",
         .argument = "",
         .help = "show absolute symbolic links as they are, even where they lead out of the mirror",
         .take = [](const Texts& texts, DaemonOptions& options) -> Taken {
             const auto raw = parse_switch(texts.front());
             options.rewrite_symlinks = !raw.value_or(false);
             return raw ? Taken() : Taken(wrong(raw.error()));
         }},
        {.name = "job",
         .argument = "ID",
         .help = "the job's name (default: that of PBS, Slurm or Flux, else local-<pid>)",
         .take = take_job},
    };
}

std::vector<OptionRow> hidden_rows() {
    using enum OptionRow::Arity;
    using enum OptionRow::Audience;
    return {
        {.name = "local",
         .argument = "",
         .help = "all nodes are on this machine: \".\" and the rank are appended to the mount point",
         .audience = hidden,
         .take = [](const Texts& texts,
                    DaemonOptions& options) { return assign(options.local, parse_switch(texts.front())); }},
        {.name = "require-key",
         .argument = "",
         .help = "the job has a key: do not start without it",
         .audience = hidden,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.require_key, parse_switch(texts.front()));
             }},
        {.name = "create-mount",
         .argument = "",
         .help = "make the mount point if it is missing, and remove it at the end",
         .audience = hidden,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.create_mount, parse_switch(texts.front()));
             }},
        {.name = "ready-timeout",
         .argument = "SECONDS",
         .help = "how long all nodes may take until they serve (default 120)",
         .audience = hidden,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.ready_timeout,
                               parse_seconds(texts.front(), {.min = 0, .max = ready_timeout_seconds_max}));
             }},
        {.name = "run-everywhere",
         .argument = "ARG",
         .help = "argv prefix that runs a command on every node, for the instance's record",
         .arity = repeatable,
         .audience = hidden,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 options.run_everywhere = texts;
                 return Taken();
             }},
    };
}

const OptionRow* find_row(const std::string& name) {
    const auto& table = option_table();
    const auto row =
        std::find_if(table.begin(), table.end(), [&](const OptionRow& each) { return each.name == name; });
    return row == table.end() ? nullptr : &*row;
}

// One that environment and file may give.
bool is_public_name(const std::string& name) {
    const OptionRow* row = find_row(name);
    const auto& of_launch = launch_option_names();
    return (row != nullptr && row->audience == OptionRow::Audience::user) ||
           std::find(of_launch.begin(), of_launch.end(), name) != of_launch.end();
}

std::string option_name_of(std::string_view variable) {
    std::string name(variable.substr(environment_prefix.size()));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
        if (c == '_') {
            return '-';
        }
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return name;
}

Texts split_at_colons(std::string_view text) {
    Texts parts;
    while (!text.empty()) {
        const auto colon = std::min(text.find(':'), text.size());
        if (colon != 0) {
            parts.emplace_back(text.substr(0, colon));
        }
        text.remove_prefix(std::min(colon + 1, text.size()));
    }
    return parts;
}

std::optional<std::string> text_of(const toml::node& node) {
    if (const auto* text = node.as_string()) {
        return text->get();
    }
    std::ostringstream out;
    if (const auto* number = node.as_integer()) {
        out << number->get();
    } else if (const auto* fraction = node.as_floating_point()) {
        out << fraction->get();
    } else if (const auto* truth = node.as_boolean()) {
        out << (truth->get() ? "true" : "false");
    } else {
        return std::nullopt;
    }
    return out.str();
}

std::optional<Texts> texts_of(const toml::node& node) {
    const auto* array = node.as_array();
    if (array == nullptr) {
        auto text = text_of(node);
        return text ? std::optional(Texts{std::move(*text)}) : std::nullopt;
    }
    Texts texts;
    for (const auto& element : *array) {
        auto text = text_of(element);
        if (!text) {
            return std::nullopt;
        }
        texts.push_back(std::move(*text));
    }
    return texts.empty() ? std::nullopt : std::optional(texts);
}

tl::expected<toml::table, std::string> parse_toml(std::string_view text, const std::string& name) {
    try {
        return toml::parse(text);
    } catch (const toml::parse_error& failure) {
        std::ostringstream message;
        message << name << ":" << failure.source().begin.line << ": " << failure.description();
        return wrong(message.str());
    }
}

Taken read_file(const std::string& path, Sources& sources) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
        return wrong(path + ": " + (error ? error.message() : "is not a file"));
    }
    std::ifstream file(path);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    return file ? add_config(text, path, sources) : wrong(path + ": cannot be read");
}

Taken take(const OptionRow& row, const SourcedText& text, DaemonOptions& options) {
    if (text.texts.size() != 1 && row.arity == OptionRow::Arity::once) {
        return wrong(text.source + ": given more than once");
    }
    // No path, and no argument of a program, can hold one.
    if (std::any_of(text.texts.begin(), text.texts.end(),
                    [](const std::string& each) { return each.find('\0') != std::string::npos; })) {
        return wrong(text.source + ": holds a zero byte");
    }
    const auto taken = row.take(text.texts, options);
    return taken ? taken : wrong(text.source + ": " + taken.error());
}

std::string default_job() {
    const std::string id = batch_job_id();
    return id.empty() ? "local-" + std::to_string(::getpid()) : id;
}

}  // namespace

std::string batch_job_id() {
    for (const char* variable : {"PBS_JOBID", "SLURM_JOB_ID", "FLUX_JOB_ID"}) {
        if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') {
            return value;
        }
    }
    return {};
}

const std::vector<OptionRow>& option_table() {
    static const std::vector<OptionRow> table = [] {
        auto rows = user_rows();
        for (auto& row : hidden_rows()) {
            rows.push_back(std::move(row));
        }
        return rows;
    }();
    return table;
}

const std::vector<std::string>& launch_option_names() {
    static const std::vector<std::string> names = {"nodes-from", "local", "launcher", "launcher-args"};
    return names;
}

void add_variable(std::string_view variable, Sources& sources) {
    const auto equals = variable.find('=');
    if (!variable.starts_with(environment_prefix) || equals == std::string_view::npos) {
        return;
    }
    const std::string key(variable.substr(0, equals));
    const std::string name = option_name_of(key);
    if (key == config_variable) {
        return;
    }
    if (!is_public_name(name)) {
        sources.warnings.push_back(key + ": no such option; ignored");
        return;
    }
    const OptionRow* row = find_row(name);
    const bool list = row != nullptr && row->arity == OptionRow::Arity::repeatable;
    const std::string value(variable.substr(equals + 1));
    if (auto texts = list ? split_at_colons(value) : Texts{value}; !texts.empty()) {
        sources.by_name[name] = {.source = key, .texts = std::move(texts)};
    }
}

tl::expected<void, std::string> add_config(std::string_view text, const std::string& name, Sources& sources) {
    const auto table = parse_toml(text, name);
    if (!table) {
        return wrong(table.error());
    }
    for (const auto& [key, value] : *table) {
        const std::string option(key.str());
        const std::string source = name + ": key " + in_quotes(option);
        if (!is_public_name(option)) {
            return wrong(source + ": no such option");
        }
        auto texts = texts_of(value);
        if (!texts) {
            return wrong(source + ": must be a text, a number, true or false, or an array of them");
        }
        sources.by_name[option] = {.source = source, .texts = std::move(*texts)};
    }
    return {};
}

tl::expected<Sources, std::string> read_sources(const std::optional<std::string>& config_file) {
    Sources sources;
    const char* variable = std::getenv(config_variable);
    const auto file = config_file                                ? config_file
                      : variable != nullptr && *variable != '\0' ? std::optional<std::string>(variable)
                                                                 : std::nullopt;
    if (file) {
        if (const auto taken = read_file(*file, sources); !taken) {
            return wrong(taken.error());
        }
    }
    for (char** variable = environ; *variable != nullptr; ++variable) {
        add_variable(*variable, sources);
    }
    return sources;
}

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
    }
    if (options.job.empty()) {
        options.job = default_job();
    }
    return options;
}

bool is_shared_filesystem(std::string_view type) {
    static constexpr std::array types = {
        "9p",           "afs",
        "beegfs",       "ceph",
        "cifs",         "dvs",
        "fhgfs",        "fuse.ceph",
        "fuse.daos",    "fuse.ceph-fuse",
        "fuse.dfuse",   "fuse.glusterfs",
        "gfs2",         "gpfs",
        "lustre",       "nfs",
        "nfs4",         "ocfs2",
        "orangefs",     "panfs",
        "pvfs2",        "smb3",
        "smbfs",        "virtiofs",
        "wekafs",       "quobyte",
        "fuse.sshfs",   "fuse.juicefs",
        "fuse.quobyte", "fuse.pvfs2fuse",
    };
    return std::find(types.begin(), types.end(), type) != types.end();
}

tl::expected<void, std::string> choose_trees(DaemonOptions& options, JobSpan span) {
    if (!options.trees.empty()) {
        return {};
    }
    for (const auto& mount : read_mounts()) {
        if (is_shared_filesystem(mount.type) && is_normalised_path(mount.point)) {
            options.trees.push_back(mount.point);
        }
    }
    if (options.trees.empty() && span == JobSpan::several_machines) {
        return wrong("no shared filesystem is mounted here; say with --tree PATH what to mirror");
    }
    if (options.trees.empty()) {
        options.trees.emplace_back("/");
    }
    drop_nested(options.trees);
    return {};
}

std::string default_mount() {
    std::string user;
    if (const char* variable = std::getenv("USER"); variable != nullptr && *variable != '\0') {
        user = variable;
    } else if (const passwd* entry = ::getpwuid(::geteuid()); entry != nullptr) {
        user = entry->pw_name;
    } else {
        user = std::to_string(::geteuid());
    }
    return "/tmp/" + user + "/copper";
}

std::string canonical_mount(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path whole = fs::absolute(path, error).lexically_normal();
    if (!whole.has_filename()) {
        whole = whole.parent_path();  // a slash at the end
    }
    // The mount point's own name is not resolved: were its daemon dead or stuck, looking at it would fail or
    // block.
    fs::path parent = whole.parent_path();
    const fs::path resolved = fs::weakly_canonical(parent, error);
    return (error ? parent : resolved) / whole.filename();
}

std::uint64_t default_cache_bytes(std::size_t daemons_here) {
    return std::clamp(memory_limit_bytes() / memory_share_default / daemons_here, cache_bytes_min,
                      cache_bytes_default_max);
}

tl::expected<void, std::string> check_cache_bytes(const DaemonOptions& options, std::size_t daemons_here) {
    const auto memory_bytes = memory_limit_bytes();
    if (options.cache_bytes <= memory_bytes / daemons_here) {
        return {};
    }
    const bool alone = daemons_here == 1;
    return wrong("--cache-bytes: " + (alone ? "a cache" : std::to_string(daemons_here) + " caches") + " of " +
                 in_mebibytes(options.cache_bytes) + (alone ? " does" : " do") +
                 " not fit into the memory that there is (" + in_mebibytes(memory_bytes) +
                 "): give at most " + in_mebibytes(memory_bytes / daemons_here) +
                 ", or leave the option out for " + in_mebibytes(default_cache_bytes(daemons_here)));
}

tl::expected<std::uint64_t, std::string> parse_size(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
    static constexpr std::string_view suffixes = "KMGT";
    constexpr unsigned bits_per_suffix = 10;
    const auto at = suffix.size() == 1
                        ? suffixes.find(suffix.front() >= 'a' ? static_cast<char>(suffix.front() - 'a' + 'A')
                                                              : suffix.front())
                        : std::string_view::npos;
    const bool sound = error == std::errc() && (suffix.empty() || at != std::string_view::npos);
    const unsigned shift = suffix.empty() ? 0 : bits_per_suffix * (static_cast<unsigned>(at) + 1);
    if (!sound || (shift != 0 && value > (~0ULL >> shift))) {
        return wrong(in_quotes(text) +
                     " is not a size; sizes are numbers of bytes, with K, M, G or T for powers of 1024");
    }
    return value << shift;
}

std::string to_string(LogLevel level) {
    return level_names[static_cast<std::size_t>(level)];
}

std::vector<std::string> to_flags(const DaemonOptions& options) {
    const auto seconds = [](milliseconds time) {
        std::array<char, 32> text;
        const auto end =
            std::to_chars(text.begin(), text.end(), std::chrono::duration<double>(time).count()).ptr;
        return std::string(text.begin(), end);
    };
    const auto truth = [](bool value) { return value ? "true" : "false"; };
    // Switches are said either way, so that no variable in a node's environment can change them.
    std::vector<std::string> flags = {
        "--mount=" + options.mount,
        "--cores=" + options.cores,
        "--cache-bytes=" + std::to_string(options.cache_bytes),
        "--shared-file-bytes=" + std::to_string(options.shared_file_bytes),
        std::string("--compress=") + compression_names[static_cast<std::size_t>(options.compress)],
        "--readers=" + std::to_string(options.readers),
        "--arity=" + std::to_string(options.arity),
        "--deadline=" + seconds(options.deadline),
        "--log-level=" + to_string(options.log_level),
        std::string("--log-to-output=") + truth(options.log_to_output),
        std::string("--allow-other=") + truth(options.allow_other),
        std::string("--push=") + push_names[static_cast<std::size_t>(options.push)],
        std::string("--passthrough=") + passthrough_names[static_cast<std::size_t>(options.passthrough)],
        std::string("--no-rewrite-symlinks=") + truth(!options.rewrite_symlinks),
        "--job=" + options.job,
        std::string("--local=") + truth(options.local),
        std::string("--require-key=") + truth(options.require_key),
        std::string("--create-mount=") + truth(options.create_mount),
        "--ready-timeout=" + seconds(options.ready_timeout)};
    for (const auto& tree : options.trees) {
        flags.push_back("--tree=" + tree);
    }
    if (!options.log_dir.empty()) {
        flags.push_back("--log-dir=" + options.log_dir);
    }
    for (const auto& argument : options.run_everywhere) {
        flags.push_back("--run-everywhere=" + argument);
    }
    return flags;
}

}  // namespace copper
