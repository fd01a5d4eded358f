// How to tell each MPI launcher to start one process on each node. Pure: runs nothing.
#pragma once

#include <cstdint>
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
    unknown
};

// From the output of `mpirun --version`.
Family family_of(std::string_view version_text);
const char* name_of(Family family);

struct Launcher {
    Family family = Family::alone;
    std::string program;   // as it is called: "mpirun"
    bool pmix = false;     // srun: the site has the PMIx plugin
    bool as_root = false;  // Open MPI must be told that running as root is intended
    // LD_LIBRARY_PATH is set here: the other nodes need it to find the MPI library.
    bool has_library_path = false;
    std::vector<std::string> extra;  // COPPER_LAUNCHER_ARGS
    bool operator==(const Launcher&) const = default;
};

// The nodes, and how to name them to the launcher.
struct Placement {
    std::vector<std::string> hosts;     // one process each
    std::string host_file;              // holds the same, for lists too long for a command line; may be empty
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

// The words in front of a program that a user starts on all of these hosts, or on one of them. Without hosts,
// on all that the launcher finds in its batch job.
std::vector<std::string> start_on_all(const Launcher& launcher, const std::vector<std::string>& hosts);
std::vector<std::string> start_on_one(const Launcher& launcher, const std::string& host);

// The program with which Open MPI reaches other nodes, according to its arguments; by default "ssh".
std::vector<std::string> reach_command(const std::vector<std::string>& launcher_arguments);

}  // namespace copper::cli
