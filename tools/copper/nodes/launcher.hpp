// How to tell each MPI launcher to start one process on each node. Pure: runs nothing.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

// Launchers that take the same options.
enum class Family {
    alone,       // no launcher: runs the command itself, on this node
    open_mpi_4,  // or older; ORTE
    open_mpi_5,  // or newer; PRRTE
    hydra,       // MPICH and its relatives
    intel,       // Intel MPI: Hydra with its own options
    pals,        // HPE Cray PALS
    slurm,       // srun
    flux,        // flux run
    unknown
};

// From the output of `PROGRAM --version`, or else from the program's place (its path without symbolic links).
Family family_of(std::string_view version_text, std::string_view place = {});
const char* name_of(Family family);
Family family_named(std::string_view name);

// The libraries that speak with different launchers. MPICH has relatives: Intel MPI, Cray MPICH.
enum class Mpi { open_mpi, mpich, unknown };
// What copperd is built with.
Mpi built_with();
const char* name_of(Mpi mpi);
// False if processes with this library would not find each other. True if that is unknown.
bool can_start(Family family, Mpi mpi);
// To choose among launchers: larger is better, 0 cannot start processes with this library. A launcher of this
// library is better than an unknown one. In a PBS job, PALS is the best if it can be used at all;
// outside, it starts nothing.
int fitness(Family family, Mpi mpi, bool in_pbs_job);
inline constexpr int fitness_max = 3;
// Whether the library speaks PMIx. Open MPI always does.
enum class Pmix { absent, present };
// srun's --mpi for this library; empty: the site's default, which is right wherever it can be. `listed`: the
// output of `srun --mpi=list`. `site_default`: MpiDefault of slurm.conf(5), or SLURM_MPI_TYPE.
std::string mpi_plugin(Mpi mpi, Pmix pmix, std::string_view listed, std::string_view site_default);

struct Launcher {
    Family family = Family::alone;
    std::string program;          // as it is called: "mpirun"
    std::string mpi_plugin = {};  // srun's --mpi, or Flux's -o pmi; empty: the site's default
    bool as_root = false;         // Open MPI must be told that running as root is intended
    // LD_LIBRARY_PATH is set here: the other nodes need it to find the MPI library.
    bool has_library_path = false;
    std::vector<std::string> extra;          // COPPER_LAUNCHER_ARGS
    std::vector<std::string> keep_env = {};  // variables that it gets though they are for the application
    std::string other_job = {};  // the batch job to start programs in, if this process is not in it
    // The hosts of each component of a heterogeneous job of Slurm, each host once; empty: another job.
    std::vector<std::vector<std::string>> components = {};
    bool operator==(const Launcher&) const = default;
};

// The nodes, and how to name them to the launcher.
struct Placement {
    std::vector<std::string> hosts;     // one process each
    std::string host_file = {};         // holds the same, for lists too long for a command line; may be empty
    std::uint32_t on_this_machine = 0;  // not 0: the number of processes here; `hosts` is ignored
};

// Longer lists of hosts go into a file: one argument of a command holds 128 KiB.
inline constexpr std::size_t hosts_on_command_line_max = 256;

// The command that runs `command` once per node. All nodes get these variables of this process's environment,
// without their values in the command. As far as the launcher allows, the end of one process does not end the
// others: Copper goes on without a lost node.
std::vector<std::string> launch_command(const Launcher& launcher, const Placement& placement,
                                        const std::vector<std::string>& command,
                                        const std::vector<std::string>& variables = {});

// The command that runs an administrative `command` on these nodes of the job. `host_file`: as in Placement.
std::vector<std::string> reach_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                     const std::vector<std::string>& command,
                                     const std::string& host_file = {});

// Whether a variable is for the MPI of the application, for the job steps that the user starts, or changes
// what any program does, so that neither daemons nor their launcher must get it. `kept`: names that the user
// wants to pass on.
bool is_for_application_only(std::string_view variable, const std::vector<std::string>& kept);
// Those of this process's environment.
std::set<std::string> variables_of_application(const std::vector<std::string>& kept = {});
// A list of library directories without those of the active conda environment, which may hold another libfuse
// or MPI.
std::string without_conda(std::string_view library_path, std::string_view conda_prefix);

// The words in front of a program that a user starts on all of these hosts, or on one of them. Without hosts,
// on all that the launcher finds in its batch job.
std::vector<std::string> start_on_all(const Launcher& launcher, const std::vector<std::string>& hosts);
std::vector<std::string> start_on_one(const Launcher& launcher, const std::string& host);

// How these words reach the job from this process: as the job that the launcher knows; as hosts, by a remote
// shell; or not at all: they work in a shell of the job only. `in_a_job`: this process is in some batch job.
enum class Reach { job, hosts, nothing };
Reach reach_of(const Launcher& launcher, bool in_a_job);

// Batch systems with a remote shell of their own.
enum class BatchSystem { lsf, grid_engine, other };
// The launcher's arguments that make it reach other nodes with that shell.
std::vector<std::string> words_within(BatchSystem system, Family family);
// True if the user's arguments for the launcher choose a remote shell.
bool names_remote_shell(const std::vector<std::string>& launcher_arguments);

// False if the launcher does not reach other nodes with a remote shell.
bool has_remote_shell(Family family);
// The remote shell of a launcher with these arguments in a job of this system; by default "ssh".
std::vector<std::string> reach_command(const std::vector<std::string>& launcher_arguments,
                                       BatchSystem system = BatchSystem::other);

}  // namespace copper::cli
