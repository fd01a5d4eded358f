#include "tools/copper/nodes/launcher.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <span>

#include <unistd.h>

#include "base/path.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

using Words = std::vector<std::string>;

// How a launcher is used. In its words, "#" stands for the number of processes, and "%" for the hosts with
// commas between them. An empty text: it has no such words.
struct Adapter {
    Family family;
    const char* name;                  // in the launch record
    const char* version = "";          // what `PROGRAM --version` says, in small letters
    Mpi mpi = Mpi::unknown;            // of the processes that it starts; unknown: any
    const char* before = "";           // the program
    const char* into_job = "";         // right behind the program, outside the batch job "%"
    const char* start = "";            // then
    const char* count = "-n #";        // of processes
    const char* hosts = "";            // where they run
    const char* host_file = "";        // the same, with a file for "%"
    const char* on_each_host = "";     // one process on each of them
    const char* on_this_machine = "";  // instead of the last two
    // Copper shares the processors with the job's own programs. The loss of one process or node must end no
    // other.
    const char* always = "";
    const char* plugin = "";              // "%" is Launcher::mpi_plugin
    const char* as_root = "";             // running as root is intended
    const char* variable = "";            // passes on the variable "%"
    const char* all_variables = "";       // passes on the whole environment, if it does not anyway
    const char* within_lsf = "";          // reaches other nodes as LSF wants it
    const char* within_grid_engine = "";  // the same for Grid Engine
    const char* one_by_hand = "-n 1";     // for a user who starts one process
    const char* reach = "";               // in front of a command for the nodes "%"; empty: as for a launch
    bool has_remote_shell = false;        // it reaches other nodes with reach_command()
};

// For administrative commands: needs no free processor. It takes the ranks of nodes, not their names.
constexpr const char* flux_exec =
    R"sh(sh -c 'exec flux exec -n -r "$(flux hostlist --find="$0" instance | tr " " ,)" "$@"' %)sh";

constexpr std::array adapters = {
    Adapter{.family = Family::alone, .name = "alone"},
    Adapter{.family = Family::open_mpi_4,
            .name = "open-mpi-4",
            .mpi = Mpi::open_mpi,
            .count = "-np #",
            .hosts = "--host %",
            .host_file = "--hostfile %",
            .on_each_host = "--map-by ppr:1:node",
            .on_this_machine = "--oversubscribe",
            .always = "--bind-to none --enable-recovery",
            .as_root = "--allow-run-as-root",
            .variable = "-x %",
            // Within Grid Engine, Open MPI uses qrsh of its own accord.
            .within_lsf = "--mca plm_rsh_agent blaunch",
            .has_remote_shell = true},
    Adapter{.family = Family::open_mpi_5,
            .name = "open-mpi-5",
            .mpi = Mpi::open_mpi,
            .count = "-np #",
            .hosts = "--host %",
            .host_file = "--hostfile %",
            .on_each_host = "--map-by ppr:1:node",
            .on_this_machine = "--map-by :OVERSUBSCRIBE",
            .always = "--bind-to none --with-ft ulfm",
            .as_root = "--allow-run-as-root",
            .variable = "-x %",
            .within_lsf = "--prtemca plm_ssh_agent blaunch",
            .has_remote_shell = true},
    // Intel's Hydra has no option for the loss of a process: it may end the job. Without the variable,
    // -ppn would not count in a batch job.
    Adapter{.family = Family::intel,
            .name = "intel",
            .version = "intel(r) mpi",
            .mpi = Mpi::mpich,
            .before = "env I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0",
            .hosts = "-hosts %",
            .host_file = "-f %",
            .on_each_host = "-ppn 1",
            .within_lsf = "-bootstrap lsf",
            .within_grid_engine = "-bootstrap sge",
            .has_remote_shell = true},
    // After a process was killed, Hydra ends all processes of that host. So each node on this machine is
    // a host of its own, under its own loopback address.
    Adapter{.family = Family::hydra,
            .name = "hydra",
            .version = "hydra",
            .mpi = Mpi::mpich,
            .hosts = "-hosts %",
            .host_file = "-f %",
            .on_each_host = "-ppn 1",
            .on_this_machine = "-launcher fork -hosts % -ppn 1",
            .always = "-bind-to none -disable-auto-cleanup",
            .within_lsf = "-launcher lsf",
            .within_grid_engine = "-launcher sge",
            .has_remote_shell = true},
    Adapter{.family = Family::pals,
            .name = "pals",
            .mpi = Mpi::mpich,
            .count = "--np #",
            .hosts = "--hosts %",
            .host_file = "--hostfile %",
            .on_each_host = "--ppn 1",
            .always = "--cpu-bind none --no-abort-on-failure",
            .all_variables = "--envall"},
    // --wait: no time limit after the first exit.
    Adapter{.family = Family::slurm,
            .name = "slurm",
            .into_job = "--jobid=%",
            .count = "--ntasks=#",
            .hosts = "--nodelist=%",
            .host_file = "--nodelist=%",
            .on_each_host = "--nodes=# --ntasks-per-node=1",
            .on_this_machine = "--nodes=1",
            .always = "--overlap --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0",
            .plugin = "--mpi=%",
            .all_variables = "--export=ALL",
            .one_by_hand = "-n 1 --overlap"},
    Adapter{.family = Family::flux,
            .name = "flux",
            .into_job = "proxy % flux",
            .start = "run",
            .count = "--ntasks=#",
            .hosts = "--requires=hosts:%",
            .on_each_host = "--nodes=#",
            .on_this_machine = "--nodes=1",
            .always = "-o cpu-affinity=off -o gpu-affinity=off -o exit-timeout=none",
            .plugin = "-o pmi=%",
            .reach = flux_exec},
    // The MPI standard suggests "mpiexec -n". COPPER_LAUNCHER_ARGS can add the rest.
    Adapter{.family = Family::unknown, .name = "unknown", .has_remote_shell = true}};

// Options of srun that a job's environment gives each step: srun(1) of Slurm 22.05, "Input environment
// variables", those that choose the resources, the time or the streams of a step, or run something beside it.
// Not those that find the job (SLURM_JOB_ID, SLURM_CONF, SLURM_CLUSTERS), concern only its allocation
// (SLURM_ACCOUNT), or that each command of ours overrides and other launchers read (SLURM_NNODES,
// SLURM_NTASKS); nor SLURM_MPI_TYPE, SLURM_NETWORK and SLURM_RESV_PORTS, which the daemons need, too. The
// last ones are of other versions. mpirun reaches the nodes with srun, too.
constexpr std::array step_options = {
    "SLURM_BCAST",          "SLURM_BCAST_EXCLUDE",   "SLURM_COMPRESS",
    "SLURM_CONSTRAINT",     "SLURM_CORE_SPEC",       "SLURM_CPU_BIND",
    "SLURM_CPU_FREQ_REQ",   "SLURM_CPUS_PER_GPU",    "SRUN_CPUS_PER_TASK",
    "SLURM_DELAY_BOOT",     "SLURM_DEPENDENCY",      "SLURM_DIST_PLANESIZE",
    "SLURM_DISTRIBUTION",   "SLURM_EPILOG",          "SLURM_EXACT",
    "SLURM_EXCLUSIVE",      "SLURM_GPU_BIND",        "SLURM_GPU_FREQ",
    "SLURM_GPUS",           "SLURM_GPUS_PER_NODE",   "SLURM_GPUS_PER_TASK",
    "SLURM_GRES",           "SLURM_GRES_FLAGS",      "SLURM_HINT",
    "SLURM_IMMEDIATE",      "SLURM_KILL_BAD_EXIT",   "SLURM_LABELIO",
    "SLURM_MEM_BIND",       "SLURM_MEM_PER_CPU",     "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",   "SLURM_NO_KILL",         "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET",
    "SLURM_OPEN_MODE",      "SLURM_OVERCOMMIT",      "SLURM_OVERLAP",
    "SLURM_PROFILE",        "SLURM_PROLOG",          "SLURM_REMOTE_CWD",
    "SLURM_REQ_SWITCH",     "SLURM_SEND_LIBS",       "SLURM_SIGNAL",
    "SLURM_SPREAD_JOB",     "SLURM_STDERRMODE",      "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",     "SLURM_STEP_GRES",       "SLURM_TASK_EPILOG",
    "SLURM_TASK_PROLOG",    "SLURM_THREAD_SPEC",     "SLURM_THREADS_PER_CORE",
    "SLURM_TIMELIMIT",      "SLURM_UNBUFFEREDIO",    "SLURM_USE_MIN_NODES",
    "SLURM_WAIT",           "SLURM_WAIT4SWITCH",     "SLURM_WORKING_DIR",
    "SRUN_CONTAINER",       "SLURM_CONTAINER",       "SLURM_TRES_PER_TASK",
};

const Adapter& adapter(Family family) {
    return *std::find_if(adapters.begin(), adapters.end(),
                         [&](const Adapter& one) { return one.family == family; });
}

Words filled(const char* words, const std::string& hosts, std::size_t count = 0) {
    Words all = split_words(words).value();
    for (auto& word : all) {
        for (const auto& [sign, text] : {std::pair('#', std::to_string(count)), std::pair('%', hosts)}) {
            if (const auto at = word.find(sign); at != std::string::npos) {
                word.replace(at, 1, text);
            }
        }
    }
    return all;
}

void append(Words& words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
}

// The program, for the job of the launch.
Words called(const Launcher& launcher) {
    Words words = {launcher.program};
    if (!launcher.other_job.empty()) {
        append(words, filled(adapter(launcher.family).into_job, launcher.other_job));
    }
    return words;
}

// The hosts by component. Those that none has are the first one's, so that srun refuses them by name.
std::vector<Words> by_component(const Launcher& launcher, Words hosts) {
    std::vector<Words> parts(launcher.components.size());
    for (std::size_t i = 1; i < parts.size(); ++i) {
        auto others = hosts_without(hosts, launcher.components[i]);
        parts[i] = hosts_without(hosts, others);
        hosts = std::move(others);
    }
    parts.front() = std::move(hosts);
    return parts;
}

// Of a component of a heterogeneous job: srun(1).
std::string group_option(const std::string& components) {
    return "--het-group=" + components;
}

std::string loopback_addresses(std::uint32_t count) {
    Words addresses;
    for (std::uint32_t node = 1; node <= count; ++node) {
        addresses.push_back("127.0." + std::to_string(node / 256) + "." + std::to_string(node % 256));
    }
    return joined(addresses, ",");
}

}  // namespace

Family family_of(std::string_view version_text, std::string_view place) {
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
    const auto* found = std::find_if(adapters.begin(), adapters.end(), [&](const Adapter& one) {
        return *one.version != '\0' && has(one.version);
    });
    if (found != adapters.end()) {
        return found->family;
    }
    // PALS does not print its name, only "mpiexec version 1.8.0 revision ..." (mache/parallel/pbs.py in
    // github.com/E3SM-Project/mache). Cray installs it below /opt/cray/pals.
    const bool like_pals = std::regex_search(text, std::regex("^mpi(exec|run) version [0-9]"));
    return like_pals || place.find("/pals/") != std::string_view::npos ? Family::pals : Family::unknown;
}

const char* name_of(Family family) {
    return adapter(family).name;
}

Family family_named(std::string_view name) {
    const auto* found =
        std::find_if(adapters.begin(), adapters.end(), [&](const Adapter& one) { return name == one.name; });
    return found != adapters.end() ? found->family : Family::unknown;
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
    const Mpi its = adapter(family).mpi;
    return mpi == Mpi::unknown || its == Mpi::unknown || mpi == its;
}

int fitness(Family family, Mpi mpi, bool in_pbs_job) {
    const bool another_is_better = in_pbs_job != (family == Family::pals) && can_start(Family::pals, mpi);
    return !can_start(family, mpi)               ? 0
           : adapter(family).mpi == Mpi::unknown ? 1
           : another_is_better                   ? 2
                                                 : fitness_max;
}

bool has_remote_shell(Family family) {
    return adapter(family).has_remote_shell;
}

std::string mpi_plugin(Mpi mpi, Pmix pmix, std::string_view listed, std::string_view site_default) {
    using Names = std::vector<const char*>;
    const auto wanted = mpi == Mpi::open_mpi    ? Names{"pmix"}
                        : mpi != Mpi::mpich     ? Names{}
                        : pmix == Pmix::present ? Names{"pmix", "pmi2", "cray_shasta"}
                                                : Names{"pmi2", "cray_shasta"};
    // "pmix_v4" is a version of "pmix".
    if (std::any_of(wanted.begin(), wanted.end(),
                    [&](auto name) { return site_default.starts_with(name); })) {
        return {};
    }
    const auto found = std::find_if(wanted.begin(), wanted.end(),
                                    [&](auto name) { return listed.find(name) != std::string_view::npos; });
    return found != wanted.end() ? *found : std::string();
}

namespace {

// One step over all components, each with options of its own: slurm.schedmd.com/heterogeneous_jobs.html,
// "Launching Applications". The hosts are in no file: it would name those of all components.
Words command_over_components(const Launcher& launcher, const Words& hosts, const Words& command,
                              const Words& variables) {
    const auto parts = by_component(launcher, hosts);
    Words words;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].empty()) {
            continue;
        }
        auto one = launcher;
        one.components.clear();
        one.extra.push_back(group_option(std::to_string(i)));
        const auto its = launch_command(one, {.hosts = parts[i]}, command, variables);
        if (words.empty()) {
            words = its;
        } else {
            words.emplace_back(":");
            words.insert(words.end(), its.begin() + 1, its.end());
        }
    }
    return words;
}

}  // namespace

std::vector<std::string> launch_command(const Launcher& launcher, const Placement& placement,
                                        const std::vector<std::string>& command,
                                        const std::vector<std::string>& variables) {
    if (launcher.family == Family::alone) {
        return command;
    }
    if (!launcher.components.empty() && placement.on_this_machine == 0) {
        return command_over_components(launcher, placement.hosts, command, variables);
    }
    const Adapter& use = adapter(launcher.family);
    const bool here = placement.on_this_machine != 0;
    const std::size_t count = here ? placement.on_this_machine : placement.hosts.size();
    const bool in_file = !here && !placement.host_file.empty() && *use.host_file != '\0';
    const std::string hosts = here      ? loopback_addresses(placement.on_this_machine)
                              : in_file ? placement.host_file
                                        : joined(placement.hosts, ",");
    Words words = filled(use.before, hosts);
    append(words, called(launcher));
    const auto add = [&](const char* more) { append(words, filled(more, hosts, count)); };
    add(use.start);
    add(use.count);
    if (here) {
        add(use.on_this_machine);
    } else {
        add(in_file ? use.host_file : use.hosts);
        add(use.on_each_host);
    }
    add(use.always);
    if (!launcher.mpi_plugin.empty()) {
        append(words, filled(use.plugin, launcher.mpi_plugin));
    }
    if (launcher.as_root) {
        add(use.as_root);
    }
    if (launcher.has_library_path && !here) {
        append(words, filled(use.variable, "LD_LIBRARY_PATH"));
    }
    for (const auto& name : variables) {
        append(words, filled(use.variable, name));
    }
    if (!variables.empty()) {
        add(use.all_variables);
    }
    append(words, launcher.extra);
    append(words, command);
    return words;
}

std::vector<std::string> reach_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                     const std::vector<std::string>& command, const std::string& host_file) {
    const char* reach = adapter(launcher.family).reach;
    if (*reach == '\0') {
        return launch_command(launcher, {.hosts = hosts, .host_file = host_file}, command);
    }
    Words words = filled(reach, joined(hosts, ","));
    append(words, command);
    return words;
}

bool is_for_application_only(std::string_view variable, const std::vector<std::string>& kept) {
    static constexpr std::array<std::string_view, 3> names = {"LD_PRELOAD", "PSM2_CUDA", "PSM3_CUDA"};
    static constexpr std::array<std::string_view, 7> prefixes = {
        "OMPI_MCA_", "PRTE_MCA_", "UCX_", "MPIR_CVAR_", "MPICH_GPU_", "MPICH_OFI_", "FI_HMEM"};
    const auto is_in = [&](const auto& list) {
        return std::find(list.begin(), list.end(), variable) != list.end();
    };
    return !is_in(kept) && (is_in(names) || is_in(step_options) ||
                            std::any_of(prefixes.begin(), prefixes.end(),
                                        [&](auto prefix) { return variable.starts_with(prefix); }));
}

std::set<std::string> variables_of_application(const std::vector<std::string>& kept) {
    std::set<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (const auto name = text.substr(0, text.find('=')); is_for_application_only(name, kept)) {
            names.emplace(name);
        }
    }
    return names;
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

Reach reach_of(const Launcher& launcher, bool in_a_job) {
    const Adapter& use = adapter(launcher.family);
    const bool has_shell = use.has_remote_shell && *use.hosts != '\0';
    return launcher.other_job.empty() || *use.into_job != '\0' ? Reach::job
           : has_shell && !in_a_job                            ? Reach::hosts
                                                               : Reach::nothing;
}

std::vector<std::string> start_on_all(const Launcher& launcher, const std::vector<std::string>& hosts) {
    const Adapter& use = adapter(launcher.family);
    Words words = called(launcher);
    append(words, filled(use.start, ""));
    if (const auto parts = launcher.components.size(); parts != 0) {
        Words with_hosts;
        const auto their = hosts.empty() ? launcher.components : by_component(launcher, hosts);
        for (std::size_t i = 0; i < parts; ++i) {
            if (!their[i].empty()) {
                with_hosts.push_back(std::to_string(i));
            }
        }
        words.push_back(group_option(joined(with_hosts, ",")));
    }
    if (!hosts.empty()) {
        append(words, filled(use.hosts, joined(hosts, ",")));
    }
    return words;
}

std::vector<std::string> start_on_one(const Launcher& launcher, const std::string& host) {
    auto words = start_on_all(launcher, {host});
    append(words, filled(adapter(launcher.family).one_by_hand, ""));
    return words;
}

std::vector<std::string> words_within(BatchSystem system, Family family) {
    const Adapter& use = adapter(family);
    return filled(system == BatchSystem::lsf           ? use.within_lsf
                  : system == BatchSystem::grid_engine ? use.within_grid_engine
                                                       : "",
                  "");
}

bool names_remote_shell(const std::vector<std::string>& launcher_arguments) {
    return std::any_of(launcher_arguments.begin(), launcher_arguments.end(), [](const std::string& word) {
        return word == "plm_rsh_agent" || word == "plm_ssh_agent" || word.starts_with("-launcher") ||
               word.starts_with("-bootstrap");
    });
}

std::vector<std::string> reach_command(const std::vector<std::string>& launcher_arguments,
                                       BatchSystem system) {
    const Words ssh = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"};
    const Words qrsh = {"qrsh", "-inherit", "-nostdin"};
    Words shell = system == BatchSystem::grid_engine ? qrsh : ssh;
    for (std::size_t i = 0; i + 1 < launcher_arguments.size(); ++i) {
        const auto& name = launcher_arguments[i];
        const auto& value = launcher_arguments[i + 1];
        if (name == "plm_rsh_agent" || name == "plm_ssh_agent" || name == "-launcher-exec" ||
            name == "-bootstrap-exec") {
            // Open MPI takes a list of agents, separated by colons, and uses the first that exists.
            if (auto words = split_words(value.substr(0, value.find(':'))); words && !words->empty()) {
                return *words;
            }
        }
        if (name == "-launcher" || name == "-bootstrap") {
            shell = value == "lsf" ? Words{"blaunch"} : value == "sge" ? qrsh : ssh;
        }
    }
    return shell;
}

}  // namespace copper::cli
