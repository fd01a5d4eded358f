// The table of options: their names, meanings and accepted texts.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "base/answer_in_time.hpp"
#include "base/error_text.hpp"
#include "base/mount_table.hpp"
#include "base/path.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/option_values.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/private_directory.hpp"

namespace copper {
namespace {

using Texts = std::vector<std::string>;
using Taken = tl::expected<void, std::string>;
using std::chrono::milliseconds;

constexpr std::uint32_t readers_max = 1U << 20;
constexpr std::uint32_t arity_max = 64;
constexpr std::uint32_t nodes_max = 1U << 20;
constexpr double deadline_seconds_min = 0.01;
constexpr double deadline_seconds_max = 3600;
constexpr double ready_timeout_seconds_max = 86400;
constexpr double revalidate_seconds_max = 86400;
constexpr std::size_t id_bytes_max = 256;
constexpr std::array passthrough_names = {"off", "auto"};         // indexed by bool
constexpr std::array push_names = {"auto", "always", "never"};    // indexed by Push
constexpr std::array compression_names = {"auto", "off", "lz4"};  // indexed by Compression
constexpr std::array level_names = {"none", "fatal", "error", "warning", "info", "debug"};

// "auto|off|lz4"
template <std::size_t count>
std::string one_of(const std::array<const char*, count>& names) {
    std::string text;
    for (const std::string_view name : names) {
        text.append(text.empty() ? "" : "|").append(name);
    }
    return text;
}

// Assigns a parsed value, or returns the error.
template <typename T, typename Parsed>
Taken assign(T& to, const Parsed& parsed) {
    if (!parsed) {
        return wrong(parsed.error());
    }
    to = *parsed;
    return {};
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

template <bool DaemonOptions::*member>
Taken take_switch(const Texts& texts, DaemonOptions& options) {
    return assign(options.*member, parse_switch(texts.front()));
}

template <Texts DaemonOptions::*member>
Taken take_words(const Texts& texts, DaemonOptions& options) {
    options.*member = texts;
    return {};
}

template <std::uint32_t DaemonOptions::*member, std::uint32_t max>
Taken take_count(const Texts& texts, DaemonOptions& options) {
    return assign(options.*member, parse_count(texts.front(), {.min = 1, .max = max}));
}

// Checks the text only. Each node's daemon checks whether it can be a mount point.
Taken take_mount(const Texts& texts, DaemonOptions& options) {
    if (texts.front().empty()) {
        return wrong("an empty path");
    }
    options.mount = canonical_mount(texts.front());
    options.mount_as_given = absolute_mount(texts.front());
    return {};
}

Taken take_private_directory(const Texts& texts, DaemonOptions& options) {
    if (owner_named_by(texts.front()) != ::geteuid()) {
        return wrong(texts.front() + ": cannot be a private directory of this user");
    }
    options.private_directory = texts.front();
    return {};
}

// Blocks as long as the filesystem does.
tl::expected<std::string, std::string> canonical_tree(const std::string& text) {
    std::error_code error;
    // Look a path inside a Copper mount up in the mount table first: resolving it could block on a dead
    // daemon.
    const std::string absolute = std::filesystem::absolute(text, error).lexically_normal();
    if (error || text.empty()) {
        return wrong(in_quotes(text) + " is not a path");
    }
    const std::string resolved = std::filesystem::canonical(absolute, error);
    if (error) {
        return wrong(text + ": " + error.message());
    }
    // The kernel may still know the attributes although the filesystem's client has ended.
    struct statx found = {};
    if (::statx(AT_FDCWD, resolved.c_str(), AT_STATX_FORCE_SYNC, STATX_TYPE, &found) != 0) {
        return wrong(text + ": " + error_text());
    }
    if (!S_ISDIR(found.stx_mode)) {
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

// Nothing if the filesystem does not answer.
std::optional<tl::expected<std::string, std::string>> canonical_tree_in_time(const std::string& text) {
    constexpr char resolved = '=', failed = '!';
    const auto answer = answer_in_time(tree_patience, [&text] {
        const auto tree = canonical_tree(text);
        return tree ? resolved + *tree : failed + tree.error();
    });
    if (!answer) {
        return std::nullopt;
    }
    return answer->front() == resolved ? tl::expected<std::string, std::string>(answer->substr(1))
                                       : tl::make_unexpected(answer->substr(1));
}

// `if_silent` says what a path means whose filesystem does not answer.
template <typename IfSilent>
Taken take_each_tree(const Texts& texts, DaemonOptions& options, const IfSilent& if_silent) {
    options.trees.clear();
    for (const auto& text : texts) {
        const auto answer = canonical_tree_in_time(text);
        auto tree = answer ? *answer : if_silent(text);
        if (!tree) {
            return wrong(tree.error());
        }
        options.trees.push_back(std::move(*tree));
    }
    drop_nested(options.trees);
    return {};
}

Taken take_trees(const Texts& texts, DaemonOptions& options) {
    return take_each_tree(
        texts, options, [](const std::string& text) -> tl::expected<std::string, std::string> {
            return wrong(text + ": its filesystem does not answer on this node (waited for " +
                         std::to_string(tree_patience.count()) + " s)");
        });
}

// Here, the filesystem may hang: other nodes read it for this one.
Taken take_resolved_trees(const Texts& texts, DaemonOptions& options) {
    const auto odd = std::ranges::find_if_not(texts, is_normalised_path);
    if (odd != texts.end()) {
        return wrong(in_quotes(*odd) + " is not an absolute path without links");
    }
    return take_each_tree(
        texts, options, [&options](const std::string& text) -> tl::expected<std::string, std::string> {
            options.warnings.push_back(text + ": its filesystem does not answer on this node");
            return text;
        });
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

template <std::string DaemonOptions::*member>
Taken take_id(const Texts& texts, DaemonOptions& options) {
    if (texts.front().empty() || texts.front().size() > id_bytes_max) {
        return wrong("a job's name has 1 to " + std::to_string(id_bytes_max) + " bytes");
    }
    options.*member = texts.front();
    return {};
}

Taken take_log_dir(const Texts& texts, DaemonOptions& options) {
    if (texts.front() == "-") {
        options.log_dir.clear();
        options.log_to_output = true;
        return {};
    }
    std::error_code error;
    options.log_dir =
        texts.front().empty() ? "" : std::filesystem::absolute(texts.front(), error).lexically_normal();
    return error ? Taken(wrong(in_quotes(texts.front()) + " is not a path")) : Taken();
}

Taken take_profile(const Texts& texts, DaemonOptions& options) {
    const std::string& text = texts.front();
    if (text.empty()) {
        return wrong("give auto, off or the path of a file");
    }
    std::error_code error;
    options.profile = text == profile_auto || text == profile_off
                          ? text
                          : std::filesystem::absolute(text, error).lexically_normal().string();
    if (!error && std::filesystem::is_directory(options.profile, error)) {
        return wrong(text + " is a directory; give the path of a file");
    }
    return {};
}

Taken take_profile_dir(const Texts& texts, DaemonOptions& options) {
    std::error_code error;
    options.profile_dir =
        texts.front().empty() ? "" : std::filesystem::absolute(texts.front(), error).lexically_normal();
    if (!texts.front().empty() && !std::filesystem::is_directory(options.profile_dir, error)) {
        return wrong(texts.front() + ": no such directory");
    }
    return {};
}

std::vector<OptionRow> user_rows() {
    return {
        {.name = "mount",
         .argument = "DIR",
         .help = "where the mirror is mounted (default /tmp/$USER/copper)",
         .take = take_mount},
        {.name = "tree",
         .letter = 't',
         .argument = "PATH",
         .help = "a directory tree to mirror cooperatively (default: every shared filesystem mounted)",
         .arity = OptionRow::Arity::repeatable,
         .take = take_trees},
        {.name = "cores",
         .argument = "auto|none|LIST",
         .help =
             "cores the daemon runs on: auto (those the job does not use, otherwise any), none, or a list "
             "such as 0,2-3",
         .take = take_cores},
        {.name = "cache-bytes",
         .argument = "SIZE",
         .help = "memory for cached objects, with suffix K, M, G or T (default 0: a quarter of memory, at "
                 "most 16G; with --local N, an N-th of that quarter)",
         .take = take_cache_bytes},
        {.name = "readers",
         .argument = "K",
         .help = "how many nodes may read the backing filesystem (default 16)",
         .take = take_count<&DaemonOptions::readers, readers_max>},
        {.name = "deadline",
         .argument = "SECONDS",
         .help =
             "how long a node waits for an object before it reads the backing filesystem itself (default 10)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.deadline, parse_seconds(texts.front(), {.min = deadline_seconds_min,
                                                                               .max = deadline_seconds_max}));
             }},
        {.name = "revalidate",
         .argument = "SECONDS",
         .help =
             "how often to look whether what the job sees has changed, and to refresh it (default 0: never; "
             "`copper refresh` does it at once)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.revalidate,
                               parse_seconds(texts.front(), {.min = 0, .max = revalidate_seconds_max}));
             }},
        {.name = "log-dir",
         .argument = "DIR",
         .help =
             "write logs to DIR/<host>-<pid>-output.log; -: to the launcher's output, while the daemons run",
         .take = take_log_dir},
        {.name = "log-level",
         .argument = one_of(level_names),
         .help = "what to log: a name, or 0 (none) to 5 (debug; default warning)",
         .take = take_log_level},
        {.name = "allow-missing",
         .argument = "N",
         .help = "serve although up to N nodes cannot; 'copper run' then runs commands there without a "
                 "mirror (default 0)",
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.allow_missing,
                               parse_count(texts.front(), {.min = 0, .max = nodes_max}));
             }},
        {.name = "allow-other",
         .argument = "",
         .help = "let other users see the mirror",
         .take = take_switch<&DaemonOptions::allow_other>},
        {.name = "profile",
         .argument = "auto|off|FILE",
         .help =
             "fetch what the last run used, and record this run: auto (the last job with this name and these "
             "trees; default), off, or a FILE",
         .take = take_profile},
        {.name = "job",
         .argument = "ID",
         .help = "the job's name (default: the batch system's, else local-<pid>)",
         .take = take_id<&DaemonOptions::job>},
    };
}

std::vector<OptionRow> seldom_rows() {
    using enum OptionRow::Audience;
    return {
        {.name = "shared-file-bytes",
         .argument = "SIZE",
         .help = "each node reads files larger than this itself (default: no limit)",
         .audience = seldom,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.shared_file_bytes, parse_size(texts.front()));
             }},
        {.name = "compress",
         .argument = one_of(compression_names),
         .help =
             "send and keep the contents of files in fewer bytes (LZ4): auto (where the network is slower "
             "than that), off, or lz4 (whatever shrinks; default auto)",
         .audience = seldom,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.compress, parse_name<Compression>(texts.front(), compression_names,
                                                                         " is neither auto, off nor lz4"));
             }},
        {.name = "arity",
         .argument = "K",
         .help = "children of a node in the broadcast trees (default 4)",
         .audience = seldom,
         .take = take_count<&DaemonOptions::arity, arity_max>},
        {.name = "push",
         .argument = one_of(push_names),
         .help = "send objects to all nodes: auto (large files only if several nodes read them), always or "
                 "never (default auto)",
         .audience = seldom,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.push, parse_name<Push>(texts.front(), push_names,
                                                              " is none of auto, always and never"));
             }},
        {.name = "passthrough",
         .argument = one_of(passthrough_names),
         .help =
             "let large files bypass the daemon: auto (each open of a file then costs a request; needs root, "
             "Linux 6.9 and libfuse 3.17), or off (default)",
         .audience = seldom,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.passthrough, parse_name<bool>(texts.front(), passthrough_names,
                                                                     " is neither auto nor off"));
             }},
        {.name = "profile-dir",
         .argument = "DIR",
         .help = "where the site's profiles lie, for jobs that have none of their own",
         .audience = seldom,
         .take = take_profile_dir},
        {.name = "no-rewrite-symlinks",
         .argument = "",
         .help = "show absolute symbolic links as they are, even if they lead out of the mirror",
         .audience = seldom,
         .take = [](const Texts& texts, DaemonOptions& options) -> Taken {
             const auto raw = parse_switch(texts.front());
             options.rewrite_symlinks = !raw.value_or(false);
             return raw ? Taken() : Taken(wrong(raw.error()));
         }},
        {.name = "log-to-output",
         .argument = "",
         .help = "use --log-dir -",
         .audience = former,
         .take = take_switch<&DaemonOptions::log_to_output>},
        {.name = "create-mount",
         .argument = "",
         .help = "not needed, a missing mount point is always made",
         .audience = former,
         .take = [](const Texts& texts, DaemonOptions&) -> Taken {
             const auto given = parse_switch(texts.front());
             return given ? Taken() : Taken(wrong(given.error()));
         }},
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
         .take = take_switch<&DaemonOptions::local>},
        {.name = "default-trees",
         .argument = "",
         .help = "nobody has chosen the trees",
         .audience = hidden,
         .take = take_switch<&DaemonOptions::has_default_trees>},
        {.name = "require-key",
         .argument = "",
         .help = "the job has a key: do not start without it",
         .audience = hidden,
         .take = take_switch<&DaemonOptions::require_key>},
        {.name = "ready-timeout",
         .argument = "SECONDS",
         .help = "time for all nodes to start serving (default 120)",
         .audience = hidden,
         .take =
             [](const Texts& texts, DaemonOptions& options) {
                 return assign(options.ready_timeout,
                               parse_seconds(texts.front(), {.min = 0, .max = ready_timeout_seconds_max}));
             }},
        {.name = "nodes",
         .argument = "N",
         .help = "how many nodes the launch has",
         .audience = hidden,
         .take = take_count<&DaemonOptions::nodes, nodes_max>},
        {.name = "run-everywhere",
         .argument = "ARG",
         .help = "argv prefix that runs a command on every node, for the instance's record",
         .arity = repeatable,
         .audience = hidden,
         .take = take_words<&DaemonOptions::run_everywhere>},
        {.name = "lease",
         .argument = "ARG",
         .help = "argv prefix of a command that ends the mirror if its batch job is over",
         .arity = repeatable,
         .audience = hidden,
         .take = take_words<&DaemonOptions::lease>},
        {.name = "batch-job",
         .argument = "ID",
         .help = "the job's id in the batch system",
         .audience = hidden,
         .take = take_id<&DaemonOptions::batch_job>},
        {.name = "batch-run",
         .argument = "ID",
         .help = "which run of the batch job",
         .audience = hidden,
         .take = take_id<&DaemonOptions::batch_run>},
        {.name = "launch",
         .argument = "ID",
         .help = "tells the daemons of one launch from all others",
         .audience = hidden,
         .take = take_id<&DaemonOptions::launch>},
        {.name = "resolved-tree",
         .argument = "PATH",
         .help = "as --tree, of a path without links, which another node has found",
         .arity = repeatable,
         .audience = hidden,
         .take = take_resolved_trees},
        {.name = "private-directory",
         .argument = "DIR",
         .help = "for the daemon's own files, the same on all nodes",
         .audience = hidden,
         .take = take_private_directory},
    };
}

}  // namespace

const std::vector<OptionRow>& option_table() {
    static const std::vector<OptionRow> table = [] {
        auto rows = user_rows();
        for (auto more : {seldom_rows(), hidden_rows()}) {
            std::ranges::move(more, std::back_inserter(rows));
        }
        return rows;
    }();
    return table;
}

const OptionRow* find_row(const std::string& name) {
    const auto& table = option_table();
    const auto row =
        std::find_if(table.begin(), table.end(), [&](const OptionRow& each) { return each.name == name; });
    return row == table.end() ? nullptr : &*row;
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
    // Sets each switch explicitly, so that no variable in a node's environment can change it.
    std::vector<std::string> flags = {
        "--mount=" + options.mount,
        "--cores=" + options.cores,
        "--cache-bytes=" + std::to_string(options.cache_bytes),
        "--shared-file-bytes=" + std::to_string(options.shared_file_bytes),
        std::string("--compress=") + compression_names[static_cast<std::size_t>(options.compress)],
        "--readers=" + std::to_string(options.readers),
        "--arity=" + std::to_string(options.arity),
        "--deadline=" + seconds(options.deadline),
        "--revalidate=" + seconds(options.revalidate),
        "--log-level=" + to_string(options.log_level),
        std::string("--log-to-output=") + truth(options.log_to_output),
        "--allow-missing=" + std::to_string(options.allow_missing),
        std::string("--allow-other=") + truth(options.allow_other),
        std::string("--push=") + push_names[static_cast<std::size_t>(options.push)],
        std::string("--passthrough=") + passthrough_names[static_cast<std::size_t>(options.passthrough)],
        std::string("--no-rewrite-symlinks=") + truth(!options.rewrite_symlinks),
        "--profile=" + options.profile,
        "--job=" + options.job,
        std::string("--local=") + truth(options.local),
        std::string("--require-key=") + truth(options.require_key),
        std::string("--default-trees=") + truth(options.has_default_trees),
        "--ready-timeout=" + seconds(options.ready_timeout)};
    for (const auto& tree : options.trees) {
        flags.push_back("--resolved-tree=" + tree);
    }
    for (const auto& [flag, text] :
         {std::pair("--log-dir=", options.log_dir), std::pair("--profile-dir=", options.profile_dir),
          std::pair("--batch-job=", options.batch_job), std::pair("--batch-run=", options.batch_run),
          std::pair("--launch=", options.launch),
          std::pair("--private-directory=", options.private_directory)}) {
        if (!text.empty()) {
            flags.push_back(flag + text);
        }
    }
    if (options.nodes != 0) {
        flags.push_back("--nodes=" + std::to_string(options.nodes));
    }
    for (const auto& argument : options.run_everywhere) {
        flags.push_back("--run-everywhere=" + argument);
    }
    for (const auto& argument : options.lease) {
        flags.push_back("--lease=" + argument);
    }
    return flags;
}

}  // namespace copper
