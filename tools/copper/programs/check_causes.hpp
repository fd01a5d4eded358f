// Which files programs opened around the mirror, and why.
//
// An open counts if its place lies below a tree, but not in a Copper mount; a directory counts if it was
// listed. What a program of the command has written before is output and does not count. Nor does `stat`.
//
// The cause is what names the longest part of the path: a script's first line, the dynamic linker's own
// words, a `.pth` file, `home` in a `pyvenv.cfg`, a variable at the program's start. Otherwise it is a
// literal path. A program's own files have the cause of the program. A variable that a program sets for
// itself is not seen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/programs/check_trace.hpp"
#include "tools/copper/programs/environment.hpp"

namespace copper::cli {

enum class Cause : std::uint8_t {
    shebang,
    rpath,
    pth,
    venv,
    variable,
    user_site,
    system_library,
    working_directory,
    link,
    literal
};
// Its name in JSON; what completes "Because of ..."; and what the user can do about it.
struct CauseText {
    const char* name;
    const char* title;
    const char* advice;
};
const CauseText& cause_text(Cause cause);

// A file or directory that was opened around the mirror.
struct Bypass {
    std::string path;
    Cause cause = Cause::literal;
    std::string variable = {};  // its name, if a variable is the cause
    std::string source = {};    // the file that names the path: a script, a program, a .pth file ...
    std::uint64_t opens = 0;
};
struct Judgement {
    std::vector<Bypass> around;  // by path
    std::uint64_t opened = 0;    // files and directories below the trees, around the mirror or through it
    std::uint64_t absent = 0;    // names that were looked for around the mirror in vain
};

struct Evidence {
    std::vector<Call> calls;
    Libraries libraries;
};
struct Surroundings {
    Mirror mirror;
    std::vector<std::string> apart;  // places that do not count, even below a tree
    ResolvePath resolve;
    // The first bytes of a file; empty on an error.
    std::function<std::string(const std::string& path, std::size_t bytes_max)> read;
};
Judgement judge(const Evidence& evidence, const Surroundings& surroundings);

}  // namespace copper::cli
