// What programs opened, as text: lines of strace(1), and what ld.so(8) says with LD_DEBUG=libs.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace copper::cli {

// A program opened a file or a directory, or became another program.
struct Call {
    enum class Kind : std::uint8_t { open, exec };
    Kind kind = Kind::open;
    std::string path;                      // as the program named it
    std::string directory = {};            // of a path that is relative; empty: not known
    bool in_working_directory = false;     // the path is relative to it
    int flags = 0;                         // of open(2)
    bool is_absent = false;                // there is no such file
    std::string place = {};                // of the open file, after all links; empty if there is none
    std::vector<std::string> environment;  // NAME=VALUE, of the new program

    // Nothing if the directory is not known. Has no "." and "..".
    std::optional<std::string> absolute_path() const;
};

// A line of `strace -y -xx -X raw -v`, which the preloaded library writes, too. Nothing for any other line,
// and for a call that failed otherwise than for a missing file.
std::optional<Call> parse_call(std::string_view line);
// The calls of each process (or thread) in a trace of `strace -f`, by its id, or "" if the lines have none. A
// relative path of exec gets its directory from the next call that names one.
std::map<std::string, std::vector<Call>> read_calls(std::istream& trace);

// Why ld.so looked for a library in a directory.
struct LibrarySearch {
    enum class By : std::uint8_t { rpath, variable, system };
    By by = By::system;
    std::string file = {};  // that has the RPATH or RUNPATH
    bool operator==(const LibrarySearch&) const = default;
};
struct Libraries {
    std::map<std::string, LibrarySearch> tried;  // by path; most of them do not exist
    std::vector<std::string> loaded;
};
// Adds the lines of a process.
void read_libraries(std::istream& log, Libraries& libraries);

}  // namespace copper::cli
