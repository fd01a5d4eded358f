// Runs the user's command as a child of this process, as if it were this process.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "tools/copper/common/failure.hpp"

namespace copper::cli {

struct ForegroundProgram {
    std::vector<std::string> words;  // the program and its arguments
    bool output_to_errors = false;   // its standard output goes where its errors go
    // Which process gets the signals that end this one; the child.
    std::function<pid_t(pid_t child)> to_signal = [](pid_t child) { return child; };
};

// Holds back the signals that end a process, from now on, and hands them to the programs that it runs.
// REQUIRES: this process has one thread.
class Foreground {
  public:
    Foreground();
    // Runs a program in this process's group, with its standard streams, and returns its status as of
    // waitpid(2). A signal to end this process goes to the program instead, whose end is then reported; also
    // one that came before. The terminal sends Ctrl-C to the program, too.
    Result<int> run(ForegroundProgram program);
    // The same, but nothing ends this program before it is done.
    Result<int> run_to_the_end(ForegroundProgram program);

  private:
    enum class Signals { passed, held };
    Result<int> run(ForegroundProgram program, Signals signals) const;

    sigset_t held_ = {};
    sigset_t before_ = {};  // the signals that this process had blocked itself
};

// Of a status as of waitpid(2), 128 + N for signal N.
int shell_exit_code(int status);

}  // namespace copper::cli
