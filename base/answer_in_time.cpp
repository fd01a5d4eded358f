#include "base/answer_in_time.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "base/processes.hpp"
#include "base/read_in_time.hpp"
#include "base/unique_fd.hpp"

namespace copper {
namespace {

// Whoever reads what this process prints must not wait for its child.
void let_go_of_output() {
    const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        ::dup2(nothing.get(), fd);
    }
}

// Whoever looks up the same name behind a process that waits cannot even be killed (d_alloc_parallel() of the
// kernel). So such a process ends, if its filesystem lets it.
void end_after(std::chrono::milliseconds time) {
    ::signal(SIGALRM, SIG_DFL);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGALRM);
    ::sigprocmask(SIG_UNBLOCK, &ends, nullptr);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    const itimerval timer = {.it_interval = {},
                             .it_value = {.tv_sec = seconds.count(),
                                          .tv_usec = std::chrono::microseconds(time - seconds).count() + 1}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
}

void answer(int to, const std::function<std::string()>& ask) {
    const std::string text = ask();
    for (std::size_t at = 0; at < text.size();) {
        const auto written = retry_eintr([&] { return ::write(to, text.data() + at, text.size() - at); });
        if (written < 0) {
            break;
        }
        at += static_cast<std::size_t>(written);
    }
    // The end of the answer, which a process that was killed does not write.
    [[maybe_unused]] const auto ended = ::write(to, "", 1);
}

}  // namespace

bool run_detached(const std::function<void()>& run) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::fork() == 0) {  // its child belongs to init
            let_go_of_output();
            run();
        }
        ::_exit(0);
    }
    return child > 0 && retry_eintr([&] { return ::waitpid(child, nullptr, 0); }) == child;
}

std::optional<std::string> answer_in_time(std::chrono::milliseconds patience,
                                          const std::function<std::string()>& ask, Holds holds) {
    const auto until = std::chrono::steady_clock::now() + patience;
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return ask();
    }
    const UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    const bool begun = run_detached([&] {
        end_after(patience);
        if (holds == Holds::nothing) {
            close_descriptors_except({writing.get()});
        }
        answer(writing.get(), ask);
    });
    if (!begun) {
        return ask();
    }
    writing.reset();
    std::string text;
    if (!read_all(reading.get(), until, text) || text.empty() || text.back() != '\0') {
        return std::nullopt;
    }
    text.pop_back();
    return text;
}

bool lock_in_time(int fd, std::chrono::milliseconds patience) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    const auto locked = [fd] { return std::string(::flock(fd, LOCK_EX) == 0 ? "locked" : "failed"); };
    return answer_in_time(patience, locked) == "locked";
}

}  // namespace copper
