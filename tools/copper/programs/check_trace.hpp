// What programs opened, by the lines of strace(1).
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
    std::string path;                   // as the program named it
    std::string directory = {};         // of a path that is relative; empty: not known
    bool in_working_directory = false;  // the path is relative to it
    int flags = 0;                      // of open(2)
    bool is_absent = false;             // there is no such file
    std::string place = {};             // of the open file, after all links; empty if there is none

    // Nothing if the directory is not known. Has no "." and "..".
    std::optional<std::string> absolute_path() const;
};

// A line of `strace -y -xx -X raw`. Nothing for any other line, and for a call that failed otherwise than for
// a missing file.
std::optional<Call> parse_call(std::string_view line);
// The calls of each process (or thread) in a trace of `strace -f`, by its id, or "" if the lines have none. A
// relative path of exec gets its directory from the next call that names one.
std::map<std::string, std::vector<Call>> read_calls(std::istream& trace);

}  // namespace copper::cli
