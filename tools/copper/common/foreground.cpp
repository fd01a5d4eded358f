#include "tools/copper/common/foreground.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error_text.hpp"

namespace copper::cli {

namespace {

// As posix_spawn(3) wants them.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (auto& word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    return pointers;
}

}  // namespace

Foreground::Foreground() {
    sigemptyset(&held_);
    for (const int signal : {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
        sigaddset(&held_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &held_, &before_);
    ::signal(SIGCHLD, SIG_DFL);  // who ignores it has no children to wait for
}

Result<int> Foreground::run(ForegroundProgram program) {
    return run(std::move(program), Signals::passed);
}

Result<int> Foreground::run_to_the_end(ForegroundProgram program) {
    return run(std::move(program), Signals::held);
}

Result<int> Foreground::run(ForegroundProgram program, Signals signals) const {
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    ::posix_spawnattr_init(&attributes);
    sigset_t blocked = signals == Signals::passed ? before_ : held_;
    if (signals == Signals::held) {
        sigdelset(&blocked, SIGCHLD);
    }
    ::posix_spawnattr_setsigmask(&attributes, &blocked);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    ::posix_spawn_file_actions_init(&actions);
    if (program.output_to_errors) {
        ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    }
    pid_t child = 0;
    const std::string& name = program.words.front();
    const int error = ::posix_spawnp(&child, name.c_str(), &actions, &attributes,
                                     pointers_to(program.words).data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        return failed(name + ": " + error_text(error));
    }
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
        int signal = 0;
        ::sigwait(&held_, &signal);
        if (signals == Signals::passed && (signal == SIGTERM || signal == SIGHUP)) {
            ::kill(program.to_signal(child), signal);
        }
    }
    return status;
}

int shell_exit_code(int status) {
    constexpr int by_signal = 128;
    return WIFSIGNALED(status) ? by_signal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace copper::cli
