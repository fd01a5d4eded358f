// How each MPI launcher is told to start one process on each of these nodes. Pure: nothing is run here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

// Launchers that take the same options.
enum class Family {
    alone,       // no launcher: the command itself, on this node
    open_mpi_4,  // and older; ORTE
    open_mpi_5,  // and newer; PRRTE
    hydra,       // MPICH and its children
    intel,       // Intel MPI: Hydra, with options of its own
    pals,        // HPE Cray PALS
    slurm,       // srun
    unknown
};

// From what `mpirun --version` prints.
Family family_of(std::string_view version_text);
const char* name_of(Family family);

struct Launcher {
    Family family = Family::alone;
    std::string program;   // as it is to be called: "mpirun"
    bool pmix = false;     // srun: the site has the PMIx plugin
    bool as_root = false;  // Open MPI wants to be told that root is meant
    bool has_library_path =
        false;  // LD_LIBRARY_PATH is set here: the other nodes need it to find the MPI library
    std::vector<std::string> extra;  // COPPER_LAUNCHER_ARGS
    bool operator==(const Launcher&) const = default;
};

// Which nodes, and what runs there.
struct Placement {
    std::vector<std::string> hosts;     // one process each
    std::string host_file;              // holds the same, for lists too long for a command line; may be empty
    std::uint32_t on_this_machine = 0;  // not 0: so many processes here, and `hosts` does not matter
};

// More hosts than this are named in a file: one argument of a command holds 128 KiB.
inline constexpr std::size_t hosts_on_command_line_max = 256;

// The command that runs `command` once a node, with these variables of this process's environment on every
// node (their values do not show in it). One process's end, however it came, does not end the others,
// as far as the launcher can be told so: Copper's nodes go on without a lost one.
std::vector<std::string> launch_command(const Launcher& launcher, const Placement& placement,
                                        const std::vector<std::string>& command,
                                        const std::vector<std::string>& variables = {});

// The program that Open MPI reaches other nodes with, as far as its arguments say so: it is "ssh" by default.
std::vector<std::string> reach_command(const std::vector<std::string>& launcher_arguments);

}  // namespace copper::cli
