// Programs and processes of this machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace copper {

// PATH, or the usual directories if it is not set.
std::string program_directories();

// Where execvp(3) finds a program: in PATH, or in this list like PATH. A name with a slash is a path already.
// Nothing if there is no executable file.
std::optional<std::string> find_program(const std::string& name);
std::optional<std::string> find_program(const std::string& name, const std::string& path_list);

// The start time of a process, field 22 of /proc/<pid>/stat; 0 if there is no such process. Process ids are
// reused; an id with its start time is unique. Of a process that /proc hides, the id must do.
std::uint64_t start_time_of(pid_t pid);
bool is_running(pid_t pid, std::uint64_t started);

// A process, not necessarily a child. The start time tells it from a later process with the same id.
struct ProcessName {
    pid_t pid = 0;
    std::uint64_t started = 0;
    bool operator==(const ProcessName&) const = default;
};
ProcessName process_named(pid_t pid);
bool is_running(const ProcessName& process);

// Closes all descriptors above 2 but these: of a process that outlives its parent.
void close_descriptors_except(const std::set<int>& kept);

// 'R', 'S', 'D', 'T' ... of proc(5); '?' if there is no such process.
char state_letter(pid_t pid);
// The kernel's function in which its main thread sleeps, such as "do_poll": /proc/PID/wchan of proc(5). Empty
// if it runs, or if the kernel does not tell.
std::string wait_channel(pid_t pid);

}  // namespace copper
