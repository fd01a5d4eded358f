// The options of a daemon. An option can be a flag, an environment variable (COPPER_ + the flag's name in
// capitals with underscores) or a key of a TOML file (the flag's name). Flags win over the environment, the
// environment over the file, the file over the default.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "base/push.hpp"
#include "cache/compressor.hpp"
#include "daemon/control/option_sources.hpp"

namespace copper {

enum class LogLevel { none, fatal, error, warning, info, debug };

inline constexpr const char* profile_auto = "auto";
inline constexpr const char* profile_off = "off";

struct DaemonOptions {
    std::string mount;               // --mount DIR; default /tmp/$USER/copper; without links
    std::string mount_as_given;      // perhaps through links
    std::vector<std::string> trees;  // --tree PATH, repeatable; default: every shared filesystem mounted
    std::string cores = "auto";      // --cores auto|none|LIST (hwloc/cpuset list format)
    // --cache-bytes SIZE (K, M, G, T suffixes: powers of 1024); 0: default_cache_bytes()
    std::uint64_t cache_bytes = 0;
    // shared-file-bytes SIZE: each node reads larger files itself
    std::uint64_t shared_file_bytes = std::numeric_limits<std::uint64_t>::max();
    Compression compress = Compression::automatic;  // compress auto|off|lz4
    std::uint32_t readers = 16;                     // --readers K
    std::uint32_t arity = 4;                        // arity K
    std::uint32_t allow_missing = 0;                // --allow-missing N: nodes that may lack a mirror
    Push push = Push::automatic;                    // push auto|always|never
    std::chrono::milliseconds deadline{10000};      // --deadline SECONDS (fractions allowed)
    // --revalidate SECONDS (fractions allowed); 0: never
    std::chrono::milliseconds revalidate{0};
    std::string log_dir;                     // --log-dir DIR; empty: standard error
    bool log_to_output = false;              // --log-dir -, or log-to-output: also to standard error
    LogLevel log_level = LogLevel::warning;  // --log-level NAME or 0..5
    bool allow_other = false;                // --allow-other
    bool passthrough = false;                // passthrough auto|off
    // --profile auto|off|FILE: `copper launch` makes a FILE of auto
    std::string profile = profile_auto;
    std::string profile_dir;       // profile-dir DIR; empty: none
    bool rewrite_symlinks = true;  // no-rewrite-symlinks
    std::string job;               // --job ID; default: from PBS, Slurm or Flux, else "local-<pid>"

    // Hidden flags, for `copper launch`. Environment and file cannot set them.
    bool local = false;  // --local: the nodes share this machine; "." and the rank are appended to the mount
    bool require_key = false;                         // --require-key: do not start without the job's key
    bool has_default_trees = false;                   // --default-trees: choose_trees() has chosen them
    std::chrono::milliseconds ready_timeout{120000};  // --ready-timeout SECONDS: for all nodes to serve
    std::uint32_t nodes = 0;                          // --nodes N: of the launch; 0: unknown
    // --run-everywhere ARG, repeatable: the argv prefix of InstanceRecord.
    std::vector<std::string> run_everywhere;
    // --lease ARG, repeatable: the argv prefix of Lease's command; empty: none
    std::vector<std::string> lease;
    std::string
        batch_job;  // --batch-job ID; default: from PBS, Slurm or Flux, which tell it to some nodes only
    std::string batch_run;  // --batch-run ID: as in InstanceRecord
    std::string launch;     // --launch ID: as in InstanceRecord
    // --private-directory DIR: the same on all nodes of a job; default: usual_private_directory()
    std::string private_directory;

    std::vector<std::string> warnings;  // odd things that resolve_options() found
    bool operator==(const DaemonOptions&) const = default;
};

// One row per option: name, argument, help and parser. The flags of `copperd` and `copper launch`, the
// environment and the TOML file all use this table.
struct OptionRow {
    std::string name;      // without "--"
    char letter = '\0';    // of the short flag, if there is one
    std::string argument;  // for help; empty: a switch
    std::string help;
    enum class Arity { once, repeatable };
    // seldom: a variable or a key of the file; its flag is not in --help. former: the help says what is to be
    // used instead. hidden: a flag between our own programs.
    enum class Audience { user, seldom, former, hidden };
    Arity arity = Arity::once;
    Audience audience = Audience::user;
    // Parses the texts of the option into `options`. A switch has the text "true" or "false". The error says
    // what is wrong with the texts.
    tl::expected<void, std::string> (*take)(const std::vector<std::string>& texts, DaemonOptions& options);
};
const std::vector<OptionRow>& option_table();
const OptionRow* find_row(const std::string& name);  // null if there is none

// The texts given as flags, by name.
using FlagTexts = std::map<std::string, std::vector<std::string>>;

// Joins flags, environment and file. Errors name the source: "COPPER_DEADLINE: ...", "file.toml: key ...:
// ...". The file is `config_file`, or COPPER_CONFIG. Without --tree, `trees` stays empty: see choose_trees().
tl::expected<DaemonOptions, std::string> resolve_options(const FlagTexts& flags,
                                                         const std::optional<std::string>& config_file);
tl::expected<DaemonOptions, std::string> resolve_options(const FlagTexts& flags, Sources sources);

std::string to_string(LogLevel level);

// The options as flags: `copperd` with these flags resolves to the same options.
std::vector<std::string> to_flags(const DaemonOptions& options);

}  // namespace copper
