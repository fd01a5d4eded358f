// Programs that the CLI starts and processes that it ends. Always an argument vector, never a shell.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/processes.hpp"
#include "tools/copper/common.hpp"

namespace copper::cli {

struct SpawnRequest {
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment;  // added to this process's own
    int output = -1;                                 // takes standard output; -1: as this process's
    int errors = -1;                                 // takes standard error; -1: as this process's
    bool own_session = false;  // leads a session and process group of its own (setsid(2))
};
// Standard input is /dev/null, and no descriptor above 2 is inherited. The child must be waited for.
Result<pid_t> spawn(const SpawnRequest& request);

struct Output {
    int status = 0;  // as of waitpid(2)
    std::string text;
};
// Runs a program and collects what it prints, on both streams. One that is not done by the deadline is
// killed, with its process group. May be called from several threads.
Result<Output> capture(const std::vector<std::string>& argv, std::chrono::milliseconds deadline);
bool succeeded(const Output& output);
// "exit code 1", "signal 9 (Killed)".
std::string describe_status(int status);

// A process that need not be a child, told from a later one with the same id by its start time.
struct ProcessName {
    pid_t pid = 0;
    std::uint64_t started = 0;
    bool operator==(const ProcessName&) const = default;
};
// False if that process has ended already.
bool send_signal(const ProcessName& process, int signal);
// True once it has ended (or is a zombie). Waits on a pidfd; before Linux 5.3, which has none, it looks every
// 20 ms.
bool wait_for_end(const ProcessName& process, std::chrono::milliseconds deadline);
// The others in the session that `leader` leads.
std::vector<ProcessName> session_of(pid_t leader);
// SIGTERM (and SIGCONT: it may be stopped), then SIGKILL after `patience`. True if it has ended.
bool end_process(const ProcessName& process, std::chrono::milliseconds patience);

}  // namespace copper::cli
