#include "tools/copper/launcher.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/path.hpp"
#include "tools/copper/words.hpp"

namespace copper::cli {

namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
}

std::string count_of(const Placement& placement) {
    return std::to_string(placement.on_this_machine != 0 ? placement.on_this_machine
                                                         : placement.hosts.size());
}

// `list` or `file` with its value; nothing on one machine.
Words host_options(const Placement& placement, const std::string& list, const std::string& file) {
    if (placement.on_this_machine != 0) {
        return {};
    }
    if (placement.host_file.empty()) {
        return {list, joined(placement.hosts, ",")};
    }
    return {file, placement.host_file};
}

// Open MPI passes on the variables it is told to. srun passes on everything unless the caller's environment
// forbids it. Hydra passes on everything. PALS must be told.
Words variable_options(Family family, const Words& variables) {
    Words words;
    if (family == Family::slurm && !variables.empty()) {
        words.emplace_back("--export=ALL");
    } else if (family == Family::pals && !variables.empty()) {
        words.emplace_back("--envall");
    } else if (family == Family::open_mpi_4 || family == Family::open_mpi_5) {
        for (const auto& name : variables) {
            append(words, {"-x", name});
        }
    }
    return words;
}

Words open_mpi(const Launcher& launcher, const Placement& placement) {
    const bool four = launcher.family == Family::open_mpi_4;
    Words words = {"-np", count_of(placement)};
    append(words, host_options(placement, "--host", "--hostfile"));
    if (placement.on_this_machine == 0) {
        append(words, {"--map-by", "ppr:1:node"});
    } else {
        append(words, four ? Words{"--oversubscribe"} : Words{"--map-by", ":OVERSUBSCRIBE"});
    }
    append(words, {"--bind-to", "none"});
    append(words, four ? Words{"--enable-recovery"} : Words{"--with-ft", "ulfm"});
    if (launcher.as_root) {
        words.emplace_back("--allow-run-as-root");
    }
    if (launcher.has_library_path && placement.on_this_machine == 0) {
        append(words, {"-x", "LD_LIBRARY_PATH"});
    }
    return words;
}

// After a process was killed, Hydra ends all processes of that host. So each node on this machine is a host
// of its own, under its own loopback address.
Words hydra_on_this_machine(const Placement& placement) {
    Words addresses;
    for (std::uint32_t node = 1; node <= placement.on_this_machine; ++node) {
        addresses.push_back("127.0." + std::to_string(node / 256) + "." + std::to_string(node % 256));
    }
    return {"-launcher", "fork", "-hosts", joined(addresses, ","), "-ppn", "1"};
}

Words hydra(const Launcher& launcher, const Placement& placement) {
    Words words = {"-n", count_of(placement)};
    append(words, host_options(placement, "-hosts", "-f"));
    if (placement.on_this_machine == 0) {
        append(words, {"-ppn", "1"});
    } else if (launcher.family == Family::hydra) {
        append(words, hydra_on_this_machine(placement));
    }
    // Intel's Hydra lacks this option: a lost process may end the job.
    if (launcher.family == Family::hydra) {
        append(words, {"-bind-to", "none", "-disable-auto-cleanup"});
    }
    return words;
}

Words slurm(const Launcher& launcher, const Placement& placement) {
    const std::string count = count_of(placement);
    Words words = placement.on_this_machine != 0
                      ? Words{"--nodes=1", "--ntasks=" + count}
                      : Words{"--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1"};
    if (placement.on_this_machine == 0) {
        words.push_back(placement.host_file.empty() ? "--nodelist=" + joined(placement.hosts, ",")
                                                    : "--nodelist=" + placement.host_file);
    }
    // Copper shares the processors with the job's own steps. A lost process or node must end neither the step
    // nor the job, and neither must the time limit after the first exit (--wait).
    append(words, {"--overlap", "--cpu-bind=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0"});
    if (!launcher.mpi_plugin.empty()) {
        words.push_back("--mpi=" + launcher.mpi_plugin);
    }
    return words;
}

// Takes names of hosts. Nothing if that is unknown.
const char* list_option(Family family) {
    switch (family) {
        case Family::open_mpi_4:
        case Family::open_mpi_5:
            return "--host";
        case Family::hydra:
        case Family::intel:
            return "-hosts";
        case Family::pals:
            return "--hosts";
        case Family::slurm:
            return "-w";
        case Family::alone:
        case Family::unknown:
            break;
    }
    return nullptr;
}

}  // namespace

Family family_of(std::string_view version_text) {
    std::string text(version_text);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    if (has("open mpi) ") || has("openrte) ") || has("prrte")) {
        const auto version = text.find(") ");
        const bool old = version != std::string::npos && version + 2 < text.size() &&
                         text[version + 2] <= '4' && text[version + 2] >= '1' &&
                         (version + 3 == text.size() || text[version + 3] == '.');
        return old ? Family::open_mpi_4 : Family::open_mpi_5;
    }
    if (has("intel(r) mpi")) {
        return Family::intel;
    }
    if (has("hydra")) {
        return Family::hydra;
    }
    if (has("pals")) {
        return Family::pals;
    }
    return Family::unknown;
}

const char* name_of(Family family) {
    switch (family) {
        case Family::alone:
            return "alone";
        case Family::open_mpi_4:
            return "open-mpi-4";
        case Family::open_mpi_5:
            return "open-mpi-5";
        case Family::hydra:
            return "hydra";
        case Family::intel:
            return "intel";
        case Family::pals:
            return "pals";
        case Family::slurm:
            return "slurm";
        case Family::unknown:
            break;
    }
    return "unknown";
}

Mpi built_with() {
    const std::string_view name = COPPER_BUILT_WITH;
    return name == name_of(Mpi::open_mpi) ? Mpi::open_mpi
           : name == name_of(Mpi::mpich)  ? Mpi::mpich
                                          : Mpi::unknown;
}

const char* name_of(Mpi mpi) {
    return mpi == Mpi::open_mpi ? "Open MPI" : mpi == Mpi::mpich ? "MPICH" : "an unknown MPI";
}

bool can_start(Family family, Mpi mpi) {
    switch (family) {
        case Family::open_mpi_4:
        case Family::open_mpi_5:
            return mpi != Mpi::mpich;
        case Family::hydra:
        case Family::intel:
        case Family::pals:
            return mpi != Mpi::open_mpi;
        case Family::alone:
        case Family::slurm:
        case Family::unknown:
            break;
    }
    return true;
}

std::string mpi_plugin(Mpi mpi, std::string_view listed, std::string_view site_default) {
    static constexpr std::array of_open_mpi = {"pmix"};
    static constexpr std::array of_mpich = {"pmi2", "pmix", "cray_shasta"};
    const auto wanted = mpi == Mpi::open_mpi ? std::span<const char* const>(of_open_mpi)
                        : mpi == Mpi::mpich  ? std::span<const char* const>(of_mpich)
                                             : std::span<const char* const>();
    // "pmix_v4" is a version of "pmix".
    if (std::any_of(wanted.begin(), wanted.end(),
                    [&](auto name) { return site_default.starts_with(name); })) {
        return {};
    }
    const auto found = std::find_if(wanted.begin(), wanted.end(),
                                    [&](auto name) { return listed.find(name) != std::string_view::npos; });
    return found != wanted.end() ? *found : std::string();
}

std::vector<std::string> launch_command(const Launcher& launcher, const Placement& placement,
                                        const std::vector<std::string>& command,
                                        const std::vector<std::string>& variables) {
    if (launcher.family == Family::alone) {
        return command;
    }
    Words words = {launcher.program};
    switch (launcher.family) {
        case Family::open_mpi_4:
        case Family::open_mpi_5:
            append(words, open_mpi(launcher, placement));
            break;
        case Family::hydra:
        case Family::intel:
            append(words, hydra(launcher, placement));
            break;
        case Family::pals:
            append(words, {"--np", count_of(placement)});
            append(words, host_options(placement, "--hosts", "--hostfile"));
            append(words, placement.on_this_machine != 0 ? Words{} : Words{"--ppn", "1"});
            append(words, {"--cpu-bind", "none", "--no-abort-on-failure"});
            break;
        case Family::slurm:
            append(words, slurm(launcher, placement));
            break;
        case Family::alone:
        case Family::unknown:
            // The MPI standard suggests "mpiexec -n". COPPER_LAUNCHER_ARGS can add the rest.
            append(words, {"-n", count_of(placement)});
            break;
    }
    append(words, variable_options(launcher.family, variables));
    append(words, launcher.extra);
    append(words, command);
    return words;
}

bool is_for_application_only(std::string_view variable, const std::vector<std::string>& kept) {
    static constexpr std::array<std::string_view, 2> names = {"LD_PRELOAD", "MPICH_GPU_SUPPORT_ENABLED"};
    static constexpr std::array<std::string_view, 3> prefixes = {"OMPI_MCA_", "PRTE_MCA_", "UCX_"};
    return std::find(kept.begin(), kept.end(), variable) == kept.end() &&
           (std::find(names.begin(), names.end(), variable) != names.end() ||
            std::any_of(prefixes.begin(), prefixes.end(),
                        [&](auto prefix) { return variable.starts_with(prefix); }));
}

std::string without_conda(std::string_view library_path, std::string_view conda_prefix) {
    std::vector<std::string_view> kept;
    while (!library_path.empty()) {
        const auto end = std::min(library_path.find(':'), library_path.size());
        const auto part = library_path.substr(0, end);
        if (conda_prefix.empty() || !is_within(part, conda_prefix)) {
            kept.push_back(part);
        }
        library_path.remove_prefix(std::min(end + 1, library_path.size()));
    }
    return joined(kept, ":");
}

std::vector<std::string> start_on_all(const Launcher& launcher, const std::vector<std::string>& hosts) {
    Words words = {launcher.program};
    if (const char* option = list_option(launcher.family); option != nullptr && !hosts.empty()) {
        append(words, {option, joined(hosts, ",")});
    }
    return words;
}

std::vector<std::string> start_on_one(const Launcher& launcher, const std::string& host) {
    auto words = start_on_all(launcher, {host});
    append(words, {"-n", "1"});
    if (launcher.family == Family::slurm) {
        words.emplace_back("--overlap");
    }
    return words;
}

std::vector<std::string> reach_command(const std::vector<std::string>& launcher_arguments) {
    for (std::size_t i = 0; i + 1 < launcher_arguments.size(); ++i) {
        const auto& name = launcher_arguments[i];
        if (name == "plm_rsh_agent" || name == "plm_ssh_agent" || name == "-launcher-exec") {
            // Open MPI takes a list of agents, separated by colons, and uses the first that exists.
            const auto& value = launcher_arguments[i + 1];
            if (auto words = split_words(value.substr(0, value.find(':'))); words && !words->empty()) {
                return *words;
            }
        }
    }
    return {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
}

}  // namespace copper::cli
