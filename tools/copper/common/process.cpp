#include "tools/copper/common/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/error_text.hpp"
#include "base/read_in_time.hpp"
#include "base/unique_fd.hpp"
#include "daemon/control/instance.hpp"

// The headers of Linux 4.18 (RHEL 8) lack these numbers, which are the same on x86-64, Arm, POWER and RISC-V.
// A kernel that lacks the calls says ENOSYS.
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace copper::cli {

namespace {

using Clock = std::chrono::steady_clock;

// After SIGKILL, the kernel may first have to finish an operation on a slow filesystem.
constexpr std::chrono::milliseconds kill_patience{5000};

// The arguments of execve(2), made before fork(2), because the child of a process with threads may not
// allocate.
class Image {
  public:
    Image(std::vector<std::string> argv, const std::map<std::string, std::string>& added,
          const std::set<std::string>& without)
        : argv_(std::move(argv)) {
        for (char** entry = environ; *entry != nullptr; ++entry) {
            const std::string text = *entry;
            const auto name = text.substr(0, text.find('='));
            if (!added.contains(name) && !without.contains(name)) {
                environment_.push_back(text);
            }
        }
        for (const auto& [name, value] : added) {
            environment_.push_back(name + "=" + value);
        }
        point(argv_, argv_pointers_);
        point(environment_, environment_pointers_);
    }
    Image(const Image&) = delete;
    Image& operator=(const Image&) = delete;

    char* const* argv() { return argv_pointers_.data(); }
    char* const* environment() { return environment_pointers_.data(); }

  private:
    static void point(std::vector<std::string>& texts, std::vector<char*>& pointers) {
        for (auto& text : texts) {
            pointers.push_back(text.data());
        }
        pointers.push_back(nullptr);
    }
    std::vector<std::string> argv_, environment_;
    std::vector<char*> argv_pointers_, environment_pointers_;
};

// A daemon must not hold pipes and files of this process's callers open for ever.
void close_on_exec_above_2() {
    constexpr unsigned close_range_cloexec = 1U << 2;  // CLOSE_RANGE_CLOEXEC, Linux 5.11
#ifdef SYS_close_range
    if (::syscall(SYS_close_range, 3U, ~0U, close_range_cloexec) == 0) {
        return;
    }
#endif
    constexpr int descriptors_max = 1024;
    for (int fd = 3; fd < descriptors_max; ++fd) {
        ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
}

// Runs in the child; uses only async-signal-safe calls. On failure, writes the reason to `report` and ends.
[[noreturn]] void become(const SpawnRequest& request, const char* program, Image& image, int report) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (request.own_session) {
        ::setsid();
        // mpirun hangs, or fails, where the working directory is closed to its user, or gone.
        std::array<char, PATH_MAX> here;
        if (::getcwd(here.data(), here.size()) == nullptr || ::access(".", X_OK) != 0) {
            [[maybe_unused]] const int changed = ::chdir("/");
        }
    }
    const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (input >= 0) {
        ::dup2(input, STDIN_FILENO);
    }
    // This order lets standard error follow standard output.
    if (request.errors >= 0) {
        ::dup2(request.errors, STDERR_FILENO);
    }
    if (request.output >= 0) {
        ::dup2(request.output, STDOUT_FILENO);
    }
    close_on_exec_above_2();
    ::execve(program, image.argv(), image.environment());
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
    ::_exit(127);
}

std::string joined_start(const std::vector<std::string>& argv) {
    return argv.empty() ? "" : argv.front();
}

UniqueFd open_process(const ProcessName& process) {
    UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    // Compare the start time after opening: from here on, the descriptor cannot mean another process.
    if (fd && start_time_of(process.pid) != process.started) {
        fd.reset();
        errno = ESRCH;
    }
    return fd;
}

}  // namespace

Result<pid_t> spawn(const SpawnRequest& request) {
    const auto program = find_program(joined_start(request.argv));
    if (!program) {
        return lacking(joined_start(request.argv) + ": not found, or not executable");
    }
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return failed("pipe: " + error_text());
    }
    const UniqueFd report_read(ends[0]);
    UniqueFd report_write(ends[1]);
    Image image(request.argv, request.environment, request.without);
    const pid_t pid = ::fork();
    if (pid < 0) {
        return failed("fork: " + error_text());
    }
    if (pid == 0) {
        become(request, program->c_str(), image, report_write.get());
    }
    report_write.reset();
    int error = 0;
    const auto count = retry_eintr([&] { return ::read(report_read.get(), &error, sizeof error); });
    if (count == static_cast<ssize_t>(sizeof error)) {
        retry_eintr([&] { return ::waitpid(pid, nullptr, 0); });
        return failed(*program + ": " + error_text(error));
    }
    return pid;
}

Result<Output> capture_until(std::chrono::milliseconds deadline, const std::vector<std::string>& argv,
                             const std::set<std::string>& without) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return failed("pipe: " + error_text());
    }
    const UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    const auto pid = spawn({.argv = argv,
                            .environment = {},
                            .without = without,
                            .output = writing.get(),
                            .errors = writing.get(),
                            .own_session = true});
    writing.reset();
    if (!pid) {
        return tl::make_unexpected(pid.error());
    }
    Output output;
    const auto child = process_named(*pid);
    output.ended = read_all(reading.get(), Clock::now() + deadline, output.text);
    if (!output.ended) {
        ::kill(-*pid, SIGKILL);
    }
    // A child that waits for a hung filesystem cannot be killed: init takes it over.
    if (output.ended || wait_for_end(child, kill_patience)) {
        retry_eintr([&] { return ::waitpid(*pid, &output.status, 0); });
    }
    return output;
}

Result<Output> capture(const std::vector<std::string>& argv, std::chrono::milliseconds deadline,
                       const std::set<std::string>& without) {
    auto output = capture_until(deadline, argv, without);
    if (output && !output->ended) {
        return failed(argv.front() + ": did not end within " + std::to_string(deadline.count()) + " ms");
    }
    return output;
}

bool succeeded(const Output& output) {
    return output.ended && WIFEXITED(output.status) && WEXITSTATUS(output.status) == 0;
}

std::string describe_status(int status) {
    if (WIFSIGNALED(status)) {
        return "signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) + ")";
    }
    return "exit code " + std::to_string(WEXITSTATUS(status));
}

bool is_set(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && *value != '\0';
}

bool send_signal(const ProcessName& process, int signal) {
    const UniqueFd fd = open_process(process);
    if (fd) {
        return ::syscall(SYS_pidfd_send_signal, fd.get(), signal, nullptr, 0) == 0;
    }
    if (errno != ENOSYS && errno != EPERM) {
        return false;
    }
    return is_running(process.pid, process.started) && ::kill(process.pid, signal) == 0;
}

bool wait_for_end(const ProcessName& process, std::chrono::milliseconds deadline) {
    const auto end = Clock::now() + deadline;
    const UniqueFd fd = open_process(process);
    if (fd) {
        pollfd waiting{fd.get(), POLLIN, 0};
        return retry_eintr([&] { return ::poll(&waiting, 1, remaining_ms(end)); }) > 0;
    }
    if (errno != ENOSYS && errno != EPERM) {
        return true;
    }
    constexpr int look_again_ms = 20;
    while (is_running(process.pid, process.started)) {
        if (remaining_ms(end) == 0) {
            return false;
        }
        ::poll(nullptr, 0, std::min(look_again_ms, remaining_ms(end)));
    }
    return true;
}

std::vector<ProcessName> session_of(pid_t leader) {
    std::vector<ProcessName> members;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
        const auto pid = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
        if (pid > 0 && pid != leader && ::getsid(pid) == leader) {
            members.push_back(process_named(pid));
        }
    }
    return members;
}

bool end_process(const ProcessName& process, std::chrono::milliseconds patience) {
    if (!send_signal(process, SIGTERM)) {
        return wait_for_end(process, std::chrono::milliseconds(0));
    }
    send_signal(process, SIGCONT);
    if (wait_for_end(process, patience)) {
        return true;
    }
    send_signal(process, SIGKILL);
    return wait_for_end(process, kill_patience);
}

}  // namespace copper::cli
