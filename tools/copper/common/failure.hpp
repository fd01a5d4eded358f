// How a command fails: its exit code, and what it says on standard error.
#pragma once

#include <string>

#include <tl/expected.hpp>

namespace copper::cli {

// The first line on standard error gives the reason.
enum ExitCode : int { exit_done = 0, exit_failed = 1, exit_usage = 2, exit_prerequisite = 3 };

// Of commands that start the user's command, as in shells.
constexpr int exit_cannot_start = 126;
constexpr int exit_not_found = 127;

struct Failure {
    int exit_code = exit_failed;
    std::string reason;  // may have further lines; the first one must say everything. Empty: said already
};

template <typename T>
using Result = tl::expected<T, Failure>;

tl::unexpected<Failure> failed(std::string reason);
tl::unexpected<Failure> misused(std::string reason);
tl::unexpected<Failure> lacking(std::string reason);
tl::unexpected<Failure> not_found(const std::string& command);

// Prints "copper: <text>" on standard error.
void say(const std::string& text);

}  // namespace copper::cli
