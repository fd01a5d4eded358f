#include "tools/copper/nodes.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error_text.hpp"
#include "base/host_name.hpp"
#include "tools/copper/everywhere.hpp"
#include "tools/copper/node_list.hpp"
#include "tools/copper/process.hpp"
#include "tools/copper/words.hpp"

namespace copper::cli {

namespace {

constexpr std::chrono::milliseconds question_patience{15000};

bool is_set(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && *value != '\0';
}

Result<std::vector<std::string>> nodes_in_file(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        return misused("node list " + path + ": " + error_text());
    }
    std::stringstream text;
    text << file.rdbuf();
    auto hosts = parse_hosts(text.str());
    if (hosts.empty()) {
        return misused("node list " + path + ": names no host");
    }
    return hosts;
}

Result<std::vector<std::string>> nodes_of_pbs() {
    if (!is_set("PBS_NODEFILE")) {
        return misused("--nodes-from pbs: PBS_NODEFILE is not set (not within a PBS job?)");
    }
    return nodes_in_file(std::getenv("PBS_NODEFILE"));
}

Result<std::vector<std::string>> nodes_of_slurm() {
    if (!is_set("SLURM_JOB_NODELIST")) {
        return misused("--nodes-from slurm: SLURM_JOB_NODELIST is not set (not within a Slurm job?)");
    }
    const auto output =
        capture({"scontrol", "show", "hostnames", std::getenv("SLURM_JOB_NODELIST")}, question_patience);
    if (!output) {
        return tl::make_unexpected(output.error());
    }
    auto hosts = succeeded(*output) ? parse_hosts(output->text) : std::vector<std::string>();
    if (hosts.empty()) {
        return failed("scontrol show hostnames: " + output->text);
    }
    return hosts;
}

tl::unexpected<Failure> not_yet(const std::string& option) {
    return misused(option + ": not supported yet");
}

const std::string package_hint =
    "; install one (Debian: openmpi-bin, RHEL: openmpi) or load the site's MPI module, or use --launcher "
    "none for "
    "this node alone";

Result<Launcher> mpi_launcher(const std::string& program) {
    const auto version = capture({program, "--version"}, question_patience);
    if (!version) {
        return lacking("launcher " + version.error().reason + package_hint);
    }
    return Launcher{.family = family_of(version->text),
                    .program = program,
                    .mpi_plugin = {},
                    .as_root = ::geteuid() == 0,
                    .has_library_path = is_set("LD_LIBRARY_PATH"),
                    .extra = {}};
}

std::string default_plugin() {
    if (is_set("SLURM_MPI_TYPE")) {
        return std::getenv("SLURM_MPI_TYPE");
    }
    const auto config = capture({"scontrol", "show", "config"}, question_patience);
    std::istringstream lines(config ? config->text : std::string());
    for (std::string name, equals, value; lines >> name;) {
        if (name == "MpiDefault" && lines >> equals >> value) {
            return value;
        }
        std::getline(lines, value);
    }
    return {};
}

Result<Launcher> slurm_launcher() {
    const auto plugins = capture({"srun", "--mpi=list"}, question_patience);
    if (!plugins) {
        return lacking("launcher " + plugins.error().reason + package_hint);
    }
    return Launcher{.family = Family::slurm,
                    .program = "srun",
                    .mpi_plugin = mpi_plugin(built_with(), plugins->text, default_plugin()),
                    .extra = {}};
}

tl::unexpected<Failure> wrong_mpi(const Launcher& launcher) {
    return lacking(launcher.program + " (" + name_of(launcher.family) +
                   ") cannot start copperd, which is built with " + name_of(built_with()) +
                   ": load the module of that MPI, or give the path of its launcher with --launcher");
}

Result<Launcher> chosen_automatically(const LauncherChoice& choice) {
    if (!choice.one_machine && is_set("SLURM_JOB_ID") && find_program("srun")) {
        return slurm_launcher();
    }
    // mpirun and mpiexec of one directory belong together; prefer the better known name. But conda's mpirun
    // may come before the mpiexec of the machine.
    std::optional<Launcher> chosen;
    for (const char* program : {"mpirun", "mpiexec"}) {
        if (!find_program(program)) {
            continue;
        }
        auto launcher = mpi_launcher(program);
        if (!launcher) {
            return launcher;
        }
        const bool fits = can_start(launcher->family, built_with());
        if (!chosen ||
            (fits && (launcher->family == Family::pals || !can_start(chosen->family, built_with())))) {
            chosen = std::move(*launcher);
        }
    }
    if (chosen) {
        return std::move(*chosen);
    }
    return lacking("no launcher found: neither mpirun, mpiexec nor (in a Slurm job) srun is in PATH" +
                   package_hint);
}

Result<Launcher> named(const LauncherChoice& choice) {
    if (choice.name == "none" || (choice.name == "auto" && choice.this_node_alone)) {
        return Launcher{};
    }
    if (choice.name == "auto") {
        return chosen_automatically(choice);
    }
    if (choice.name == "mpirun" || choice.name == "mpiexec" || choice.name.find('/') != std::string::npos) {
        return mpi_launcher(choice.name);
    }
    if (choice.name == "srun") {
        return slurm_launcher();
    }
    if (choice.name == "flux" || choice.name == "pdsh") {
        return not_yet("--launcher " + choice.name);
    }
    return misused("--launcher " + choice.name +
                   ": must be auto, mpirun, mpiexec, the path of one, srun or none");
}

}  // namespace

Result<std::vector<std::string>> find_nodes(const std::string& from) {
    if (from == "pbs" || (from == "auto" && is_set("PBS_NODEFILE"))) {
        return nodes_of_pbs();
    }
    if (from == "slurm" || (from == "auto" && is_set("SLURM_JOB_NODELIST"))) {
        return nodes_of_slurm();
    }
    if (from == "flux" || (from == "auto" && is_set("FLUX_JOB_ID"))) {
        return not_yet("--nodes-from flux");
    }
    if (from == "auto") {
        return std::vector<std::string>{host_name()};
    }
    return nodes_in_file(from);
}

Result<Launcher> find_launcher(const LauncherChoice& choice) {
    auto launcher = named(choice);
    if (!launcher) {
        return launcher;
    }
    if (!can_start(launcher->family, built_with())) {
        return wrong_mpi(*launcher);
    }
    auto extra = split_words(choice.arguments);
    if (!extra) {
        return misused("COPPER_LAUNCHER_ARGS: " + extra.error());
    }
    launcher->extra = std::move(*extra);
    return launcher;
}

}  // namespace copper::cli
