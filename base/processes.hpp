// Programs and processes of this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace copper {

// Where a program of this name lies in PATH; a name with a slash stands for itself. Nothing if it cannot be
// executed.
std::optional<std::string> find_program(const std::string& name);

// When it started: field 22 of /proc/<pid>/stat, which tells a process from a later one of the same id. 0 if
// there is no such process.
std::uint64_t start_time_of(pid_t pid);
bool is_running(pid_t pid, std::uint64_t started);

}  // namespace copper
