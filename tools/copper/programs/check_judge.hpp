// Which files programs opened around the mirror.
//
// An open counts if its place lies below a tree, but not in a Copper mount; a directory counts if it was
// listed. What a program of the command has written before is output and does not count. Nor does `stat`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/copper/programs/check_trace.hpp"
#include "tools/copper/programs/environment.hpp"

namespace copper::cli {

// A file or directory that was opened around the mirror.
struct Bypass {
    std::string path;
    std::uint64_t opens = 0;
};
struct Judgement {
    std::vector<Bypass> around;  // by path
    std::uint64_t opened = 0;    // files and directories below the trees, around the mirror or through it
    std::uint64_t absent = 0;    // names that were looked for around the mirror in vain
};

struct Surroundings {
    Mirror mirror;
    std::vector<std::string> apart;  // places that do not count, even below a tree
    ResolvePath resolve;
    // The first bytes of a file; empty on an error.
    std::function<std::string(const std::string& path, std::size_t bytes_max)> read;
};
Judgement judge(const std::vector<Call>& calls, const Surroundings& surroundings);

}  // namespace copper::cli
