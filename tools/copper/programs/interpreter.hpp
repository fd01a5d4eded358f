// Programs that lead out of the mirror although their own file lies in it: scripts, whose first line names
// the interpreter by its absolute path, and Pythons of virtual environments, whose pyvenv.cfg names the
// standard library's place.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/programs/environment.hpp"

namespace copper::cli {

// The place of a program in the mirror, like through_mirror(). A Python in a directory in a tree keeps its
// name, even if that is a link to another place: Python finds its virtual environment by the name.
std::optional<std::string> program_through_mirror(const Mirror& mirror, const std::string& path,
                                                  const ResolvePath& resolve);

// The interpreter of a script, and what it gets before the script's path. `text` is the beginning of the
// file. Empty for another file, or if the interpreter's path is relative.
std::vector<std::string> interpreter_of(std::string_view text);

// The command that starts `program`, a script, with its interpreter from the mirror. The command itself if
// `program` is not a script, or its interpreter lies in no tree.
std::vector<std::string> with_mirrored_interpreter(const Mirror& mirror, const std::string& program,
                                                   std::vector<std::string> command,
                                                   const ResolvePath& resolve);

// The mirrored directories of the standard library, as a part of PYTHONPATH, if `program` is the Python of a
// virtual environment that was made from a Python in a tree. (With PYTHONHOME instead, Python 3.14 does not
// find the environment's packages.)
std::optional<std::string> mirrored_standard_library(const Mirror& mirror, const std::string& program,
                                                     const ResolvePath& resolve);

}  // namespace copper::cli
