// The environment variables that send a program through the mirror.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace copper::cli {

struct Mirror {
    std::string mount;
    std::vector<std::string> trees;   // canonical paths; everything in them goes through the mount
    std::vector<std::string> mounts;  // other Copper mounts here: paths in them need no change
};
bool lies_in_trees(const Mirror& mirror, std::string_view path);

// The path after all symbolic links; nothing if it leads nowhere.
using ResolvePath = std::function<std::optional<std::string>(const std::string&)>;
using ReadVariable = std::function<std::optional<std::string>(const std::string&)>;

// The place under the mount of an absolute path that lies in a tree, directly or through links (/bin is
// /usr/bin). Nothing for a path outside the trees, or already in a mount.
std::optional<std::string> through_mirror(const Mirror& mirror, std::string_view path,
                                          const ResolvePath& resolve);

// Does the same for each part of a list like PATH. Other parts, also empty ones, stay as they are.
std::string list_through_mirror(const Mirror& mirror, std::string_view list, const ResolvePath& resolve);

// The path below the mount, without the mount; nothing for a path that is not below it.
std::optional<std::string> out_of_mirror(std::string_view mount, std::string_view path);

struct EnvironmentRequest {
    Mirror mirror;
    // A directory on each node's own disk that belongs to this user alone, for caches that programs want to
    // write. The mirrored trees are read-only.
    std::string scratch;
    // PYTHONPYCACHEPREFIX makes Python ignore the .pyc files beside the sources and compile everything on
    // each node at the first import, which is the time that Copper saves. So the default is
    // PYTHONDONTWRITEBYTECODE: Python uses the tree's .pyc files and writes none. Only the module below
    // keeps, in the scratch, what else it compiles.
    bool python_bytecode_in_scratch = false;
    // The directory of tools/python/sitecustomize.py on each node, to put in front of PYTHONPATH. The module
    // saves a request for each module that is imported again, keeps bytecode, and leads Pythons into the
    // mirror that start outside. Empty: leave it out.
    std::string python_modules = {};
};
// To set, or without a value to unset.
using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

// The changes that send programs through the mirror. Rewrites the user's values but never replaces them. The
// original directories of PATH stay, behind all others, for commands after `copper stop`. Those of other
// lists do not: what reads these looks for absent names all the time (Python for its standard library in
// PYTHONPATH, the loader for libc in LD_LIBRARY_PATH), and would ask the filesystem on every node. (`import
// numpy`, all of it in the mirror: 64 calls on the original if that stays in PYTHONPATH, 30 in
// LD_LIBRARY_PATH, 0 in PATH.) In an environment that is changed already, the changes from there.
//
// No shell functions for console scripts: srun, mpiexec and scripts would not use them.
Changes mirrored_environment(const EnvironmentRequest& request, const ReadVariable& read,
                             const ResolvePath& resolve);

// Whether any of the rewritten variables (PATH, ...), as changed, leads into the mirror.
bool leads_into(const Mirror& mirror, const Changes& changed, const ReadVariable& read);
// Their names: "PATH, PYTHONPATH, ...".
std::string rewritten_variables();

// The reverse of mirrored_environment(), by the variable in which that leaves the originals: each variable
// gets back its original value. If it was changed meanwhile, only what leads into the mirror is taken out.
struct Undo {
    Changes changes;                     // none if the environment is not changed
    std::vector<std::string> lost = {};  // variables whose original values were too long to keep
    bool is_damaged = false;             // the originals are not whole: then nothing changes
};
Undo unmirrored_environment(const ReadVariable& read);
// The variables whose values these changes lose.
std::vector<std::string> lost_by(const Changes& changes);

// bash and zsh are posix. Slurm takes what a TaskProlog prints, without quotes.
enum class Shell { posix, fish, csh, slurm };
// Lines that make the changes. Those of csh and fish end with ";", because their `eval` joins lines.
std::string shell_lines(Shell shell, const Changes& changes);

}  // namespace copper::cli
