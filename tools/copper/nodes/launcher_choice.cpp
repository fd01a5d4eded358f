#include "tools/copper/nodes/launcher_choice.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include "base/processes.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/nodes/nodes.hpp"

namespace copper::cli {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Starting a launcher takes long on a slow filesystem.
constexpr std::size_t launchers_asked_max = 8;

const std::string package_hint =
    "; install one (Debian: openmpi-bin, RHEL: openmpi) or load the site's MPI module, or use --launcher "
    "none for this node alone";

Result<Launcher> mpi_launcher(const std::string& program, milliseconds patience = question_patience) {
    const auto version = capture({program, "--version"}, patience);
    if (!version) {
        return lacking("launcher " + version.error().reason + package_hint);
    }
    return Launcher{.family = family_of(version->text, place_of(program)),
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

// MPICH can be built with PMIx or without. The dynamic linker lists what a program loads (ld.so(8)).
Pmix pmix_of(const std::string& copperd) {
    const auto libraries = capture({"env", "LD_TRACE_LOADED_OBJECTS=1", copperd}, question_patience);
    return libraries && libraries->text.find("libpmix.so") == std::string::npos ? Pmix::absent
                                                                                : Pmix::present;
}

// Outside a job, srun and flux would start one of their own, which no later command could find.
tl::unexpected<Failure> outside_a_job(const std::string& launcher, const std::string& sign,
                                      const std::string& places) {
    return misused("--launcher " + launcher + ": this is no job (" + sign + " is not set): launch from " +
                   places);
}

Result<Launcher> slurm_launcher(const std::string& copperd) {
    const auto plugins = capture({"srun", "--mpi=list"}, question_patience);
    if (!plugins) {
        return lacking("launcher " + plugins.error().reason + package_hint);
    }
    if (!is_set("SLURM_JOB_ID")) {
        return outside_a_job("srun", "SLURM_JOB_ID", "the job's script or the shell of salloc");
    }
    auto components = slurm_components();
    if (!components) {
        return tl::make_unexpected(components.error());
    }
    return Launcher{.family = Family::slurm,
                    .program = "srun",
                    .mpi_plugin = mpi_plugin(built_with(), pmix_of(copperd), plugins->text, default_plugin()),
                    .extra = {},
                    .components = std::move(*components)};
}

Result<Launcher> flux_launcher() {
    if (!find_program("flux")) {
        return lacking("launcher flux not found in PATH");
    }
    if (!is_set("FLUX_URI")) {
        return outside_a_job("flux", "FLUX_URI", "the script of 'flux batch' or the shell of 'flux alloc'");
    }
    if (is_set("FLUX_JOB_ID")) {
        return misused(
            "a program that 'flux run' started cannot start others on the nodes of its job: launch from the "
            "script of 'flux batch' or the shell of 'flux alloc'");
    }
    // Flux ignores names that it does not know, and only flux-pmix knows "pmix". Open MPI up to version 4 can
    // do with "simple", Flux's own.
    return Launcher{.family = Family::flux,
                    .program = "flux",
                    .mpi_plugin = built_with() == Mpi::open_mpi ? "simple,pmix" : "",
                    .extra = {}};
}

tl::unexpected<Failure> wrong_mpi(const Launcher& launcher) {
    return lacking(launcher.program + " (" + name_of(launcher.family) +
                   ") cannot start copperd, which is built with " + name_of(built_with()) +
                   ": load the module of that MPI, or give the path of its launcher with --launcher");
}

// All mpirun and mpiexec in the order of PATH, but each program once, whatever links lead to it. In a
// directory they belong together, and mpirun is the better known name.
std::vector<std::string> launchers_in_path() {
    std::vector<std::string> found;
    std::set<std::string> places;
    std::istringstream directories(program_directories());
    for (std::string directory; std::getline(directories, directory, ':');) {
        std::error_code error;
        // `copper stop` may run in another directory.
        const auto absolute = std::filesystem::absolute(directory.empty() ? "." : directory, error);
        for (const std::string name : {"mpirun", "mpiexec"}) {
            const auto program = find_program(name, absolute);
            if (program && found.size() < launchers_asked_max && places.insert(place_of(*program)).second) {
                found.push_back(find_program(name) == program ? name : *program);
            }
        }
    }
    return found;
}

// The first one may belong to another MPI, such as that of a conda environment.
Result<Launcher> best_in_path() {
    const bool in_pbs_job = is_set("PBS_NODEFILE");
    Result<Launcher> chosen =
        lacking("no launcher found: neither mpirun, mpiexec nor (in their jobs) srun or flux is in PATH" +
                package_hint);
    int reached = -2;
    const auto deadline = steady_clock::now() + question_patience;
    for (const auto& program : launchers_in_path()) {
        auto launcher = mpi_launcher(program, duration_cast<milliseconds>(deadline - steady_clock::now()));
        const int its = launcher ? fitness(launcher->family, built_with(), in_pbs_job) : -1;
        if (its > reached) {  // even the first failure
            chosen = std::move(launcher);
            reached = its;
        }
        if (reached == fitness_max || steady_clock::now() >= deadline) {
            break;
        }
    }
    return chosen;
}

Result<Launcher> chosen_automatically(const LauncherChoice& choice) {
    if (!choice.one_machine && is_set("SLURM_JOB_ID") && find_program("srun")) {
        return slurm_launcher(choice.copperd);
    }
    if (!choice.one_machine && is_set("FLUX_URI") && find_program("flux")) {
        return flux_launcher();
    }
    return best_in_path();
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
        return slurm_launcher(choice.copperd);
    }
    if (choice.name == "flux") {
        return flux_launcher();
    }
    if (choice.name == "pdsh" || choice.name == "jsrun") {
        return misused("--launcher " + choice.name + ": it cannot start " +
                       (choice.name == "pdsh" ? "programs that use MPI" : "programs on chosen nodes") +
                       "; give the nodes with --nodes-from, and an MPI launcher that reaches them");
    }
    return misused("--launcher " + choice.name +
                   ": must be auto, mpirun, mpiexec, the path of one, srun, flux or none");
}

}  // namespace

std::string place_of(const std::string& program) {
    std::error_code error;
    return std::filesystem::canonical(find_program(program).value_or(program), error);
}

BatchSystem batch_system() {
    return is_set("LSB_JOBID")     ? BatchSystem::lsf
           : is_set("PE_HOSTFILE") ? BatchSystem::grid_engine
                                   : BatchSystem::other;
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
    if (!choice.one_machine && !names_remote_shell(*extra)) {
        launcher->extra = words_within(batch_system(), launcher->family);
    }
    launcher->extra.insert(launcher->extra.end(), extra->begin(), extra->end());
    return launcher;
}

}  // namespace copper::cli
