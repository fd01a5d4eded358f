// Programs and processes of this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace copper {

// Finds a program in PATH. A name with a slash is a path already. Nothing if it is not executable.
std::optional<std::string> find_program(const std::string& name);

// The start time of a process, field 22 of /proc/<pid>/stat; 0 if there is no such process. Process ids are
// reused; an id with its start time is unique.
std::uint64_t start_time_of(pid_t pid);
bool is_running(pid_t pid, std::uint64_t started);

}  // namespace copper
