#include "tools/copper/launch/watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <iostream>

#include "base/error_text.hpp"

namespace copper::cli {

namespace {

using Clock = std::chrono::steady_clock;

sigset_t watched_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
        sigaddset(&set, signal);
    }
    return set;
}

}  // namespace

Result<LaunchWatch> LaunchWatch::make(const std::string& log_path, std::size_t left_out) {
    UniqueFd log(::open(log_path.c_str(), O_RDONLY | O_CLOEXEC));
    UniqueFd changes(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!log || !changes || ::inotify_add_watch(changes.get(), log_path.c_str(), IN_MODIFY) < 0) {
        return failed(log_path + ": cannot be watched: " + error_text());
    }
    const sigset_t set = watched_signals();
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    UniqueFd signals(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!signals) {
        return failed("signalfd: " + error_text());
    }
    return LaunchWatch(std::move(log), std::move(changes), std::move(signals), left_out);
}

LaunchOutcome LaunchWatch::wait(pid_t launcher, std::chrono::milliseconds patience) {
    LaunchOutcome outcome;
    const auto deadline = Clock::now() + patience;
    for (;;) {
        bool interrupted = false;
        for (int signal = next_signal(); signal != 0; signal = next_signal()) {
            interrupted = interrupted || signal != SIGCHLD;
        }
        // This order matters: after the end, all output has been written.
        const bool ended = has_ended(launcher, outcome);
        read_log();
        outcome.readiness = readiness_;
        if (outcome.readiness && outcome.readiness->done && !ended) {
            outcome.end = LaunchEnd::reported;
        } else if (ended) {
            outcome.end = LaunchEnd::ended;
        } else if (interrupted) {
            outcome.end = LaunchEnd::interrupted;
        } else if (wait_for_event(deadline)) {
            continue;
        } else {
            outcome.end = LaunchEnd::timed_out;
        }
        break;
    }
    if (!shown_.empty() && ::isatty(STDERR_FILENO) != 0) {
        std::cerr << std::endl;
    }
    outcome.tail = reader_.tail();
    return outcome;
}

void LaunchWatch::end_launcher(pid_t launcher, std::chrono::milliseconds patience) {
    LaunchOutcome outcome;
    for (const int signal : {SIGTERM, SIGKILL}) {
        if (has_ended(launcher, outcome)) {
            return;
        }
        ::kill(-launcher, signal);
        const auto deadline = Clock::now() + patience;
        while (!has_ended(launcher, outcome) && wait_for_event(deadline)) {
            while (next_signal() != 0) {
            }
            read_log();
        }
    }
}

bool LaunchWatch::wait_for_event(Clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
        return false;
    }
    std::array<pollfd, 2> waiting{pollfd{changes_.get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0}};
    return retry_eintr([&] { return ::poll(waiting.data(), waiting.size(), static_cast<int>(left)); }) > 0;
}

int LaunchWatch::next_signal() {
    signalfd_siginfo info{};
    const auto count = ::read(signals_.get(), &info, sizeof info);
    return count == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

bool LaunchWatch::has_ended(pid_t launcher, LaunchOutcome& outcome) {
    ended_ = ended_ || ::waitpid(launcher, &outcome.status, WNOHANG) == launcher;
    return ended_;
}

void LaunchWatch::read_log() {
    std::array<char, 65536> buffer{};
    // Drain the events: they say only that there is something to read.
    while (::read(changes_.get(), buffer.data(), buffer.size()) > 0) {
    }
    for (;;) {
        const auto count = retry_eintr([&] { return ::read(log_.get(), buffer.data(), buffer.size()); });
        if (count <= 0) {
            return;
        }
        auto readiness = reader_.feed(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
        if (readiness) {
            show_progress(*readiness);
            readiness_ = std::move(readiness);
        }
    }
}

void LaunchWatch::show_progress(const Readiness& readiness) {
    const std::string text = "copper: " + std::to_string(readiness.ready) + " of " +
                             std::to_string(readiness.nodes + left_out_) + " nodes ready";
    // The caller reports failures, with their reasons.
    if (text == shown_ || (readiness.done && !readiness.serves)) {
        return;
    }
    shown_ = text;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    std::cerr << (terminal ? "\r" : "") << text << (terminal ? "\033[K" : "\n") << std::flush;
}

}  // namespace copper::cli
