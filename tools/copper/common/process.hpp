// Programs that the CLI starts and processes that it ends. Takes argument vectors, never shell commands.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/processes.hpp"
#include "tools/copper/common/failure.hpp"

namespace copper::cli {

struct SpawnRequest {
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment;  // added to this process's own
    std::set<std::string> without = {};              // variables of this process that it does not get
    int output = -1;                                 // for standard output; -1: that of this process
    int errors = -1;                                 // for standard error; -1: that of this process
    bool own_session = false;                        // leads its own session and process group (setsid(2))
};
// Standard input is /dev/null, and the child inherits no descriptor above 2. The caller must wait for the
// child.
Result<pid_t> spawn(const SpawnRequest& request);

struct Output {
    bool ended = true;  // before the deadline
    int status = 0;     // as of waitpid(2), if it ended
    std::string text;
};
// Runs a program and collects its output from both streams. At the deadline, kills the program with its
// process group, and returns what came until then. May be called from several threads.
Result<Output> capture_until(std::chrono::milliseconds deadline, const std::vector<std::string>& argv,
                             const std::set<std::string>& without = {});
// The same, but it fails if the program does not end in time.
Result<Output> capture(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
                       const std::set<std::string>& without = {});
// For a program that only answers a question.
inline constexpr std::chrono::milliseconds question_patience{15000};
bool succeeded(const Output& output);
// "exit code 1", "signal 9 (Killed)".
std::string describe_status(int status);

// Whether this process has the variable, with a value that is not empty.
bool is_set(const char* variable);

// False if the process has ended already.
bool send_signal(const ProcessName& process, int signal);
// True once it has ended (or is a zombie). Waits on a pidfd. Linux before 5.3 has none; there it looks every
// 20 ms.
bool wait_for_end(const ProcessName& process, std::chrono::milliseconds deadline);
// The other processes in the session of `leader`.
std::vector<ProcessName> session_of(pid_t leader);
// Sends SIGTERM (and SIGCONT, since it may be stopped), and SIGKILL after `patience`. True if it has ended.
bool end_process(const ProcessName& process, std::chrono::milliseconds patience);

}  // namespace copper::cli
