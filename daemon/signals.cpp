#include "daemon/signals.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <array>
#include <csignal>

namespace copper {

SignalWatcher::SignalWatcher(std::function<void(int, pid_t)> on_signal) : on_signal_(std::move(on_signal)) {
    std::signal(SIGPIPE, SIG_IGN);
    sigset_t watched;
    sigemptyset(&watched);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGALRM}) {
        sigaddset(&watched, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &watched, nullptr);
    signals_ = UniqueFd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    end_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { watch(); });
}

SignalWatcher::~SignalWatcher() {
    ::eventfd_write(end_.get(), 1);
    thread_.join();
}

void SignalWatcher::watch() {
    std::array polled = {pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                         pollfd{.fd = end_.get(), .events = POLLIN, .revents = 0}};
    while (true) {
        if (retry_eintr([&] { return ::poll(polled.data(), polled.size(), -1); }) < 0 ||
            polled[1].revents != 0) {
            return;
        }
        signalfd_siginfo info = {};
        if (retry_eintr([&] { return ::read(signals_.get(), &info, sizeof(info)); }) == sizeof(info)) {
            on_signal_(static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid));
        }
    }
}

}  // namespace copper
