#include "daemon/vitals.hpp"

#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>

namespace copper {
namespace {

static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes them");

constexpr std::array crashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
constexpr std::array other_ends = {SIGQUIT, SIGXCPU, SIGXFSZ, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF};

// Of this process. A signal handler has no other way to find them.
Vitals* noted = nullptr;
std::array<struct sigaction, NSIG> handled_before;

extern "C" void note_signal(int signal) {
    noted->signal = signal;
    // After this handler returns, the previous handler gets the signal again.
    ::sigaction(signal, &handled_before[static_cast<std::size_t>(signal)], nullptr);
    ::raise(signal);
}

void note(int signal) {
    struct sigaction action = {};
    action.sa_handler = note_signal;
    ::sigaction(signal, &action, &handled_before[static_cast<std::size_t>(signal)]);
}

std::string by_signal(int signal) {
    const bool crash = std::find(crashes.begin(), crashes.end(), signal) != crashes.end();
    return std::string(crash ? "crashed" : "killed") + ": signal " + std::to_string(signal) + " (" +
           ::strsignal(signal) + ")";
}

}  // namespace

const char* to_string(Activity activity) {
    switch (activity) {
        case Activity::starting:
            return "started";
        case Activity::waiting:
            return "waited for work";
        case Activity::own_requests:
            return "worked on requests of the daemon's own threads";
        case Activity::fabric:
            return "was in MPI";
        case Activity::message:
            return "worked on a message of another node";
        case Activity::what_was_due:
            return "ran timers";
        case Activity::starting_reads:
            return "started reads";
        case Activity::ending:
            return "had ended";
    }
    return "did something unknown";
}

Vitals* Vitals::make() {
    void* memory = ::mmap(nullptr, sizeof(Vitals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) Vitals;
}

void Vitals::reset() {
    activity = Activity::starting;
    signal = 0;
    exit_status = -1;
}

void Vitals::note_end_of_this_process() {
    noted = this;
    for (const int crash : crashes) {
        note(crash);
    }
    for (const int end : other_ends) {
        struct sigaction current = {};
        // A signal with a handler may not end the process, so leave it alone.
        if (::sigaction(end, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
            note(end);
        }
    }
#ifdef __GLIBC__
    ::on_exit([](int status, void* vitals) { static_cast<Vitals*>(vitals)->exit_status = status; }, this);
#endif
}

std::string describe_end(const Vitals& vitals) {
    if (vitals.signal != 0) {
        return by_signal(vitals.signal);
    }
    if (vitals.exit_status >= 0) {
        return "exited with status " + std::to_string(vitals.exit_status);
    }
    return "killed without notice (SIGKILL, perhaps by the kernel for lack of memory)";
}

std::string describe_end(int wait_status) {
    if (WIFSIGNALED(wait_status)) {
        return by_signal(WTERMSIG(wait_status));
    }
    return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace copper
