#include "fuse/interrupts.hpp"

#include <csignal>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace copper {
namespace {

constexpr std::chrono::milliseconds look_period{250};
// INTERRUPT can overtake its request, which another thread took: it may be entered only later.
constexpr int looks_at_unknown_max = 4;

std::uint64_t bit(int signal) {
    return std::uint64_t{1} << (signal - 1);
}

// A line like "SigPnd:\t0000000000000100". 0 if there is none.
std::uint64_t signals(std::string_view status, std::string_view name) {
    const auto at = status.find(name);
    std::uint64_t set = 0;
    if (at != std::string_view::npos) {
        const auto text = status.substr(at + name.size());
        std::from_chars(text.data(), text.data() + text.size(), set, 16);
    }
    return set;
}

std::string status_of(pid_t thread) {
    std::ifstream file("/proc/" + std::to_string(thread) + "/status");
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

// The kernel turns most signals that end a process into SIGKILL for each of its threads (kernel/signal.c,
// complete_signal): not one that writes a core, and none that comes while a thread has another one pending.
bool will_end(std::string_view status) {
    const std::uint64_t pending = signals(status, "\nSigPnd:\t") | signals(status, "\nShdPnd:\t");
    const std::uint64_t spared =
        signals(status, "\nSigBlk:\t") | signals(status, "\nSigIgn:\t") | signals(status, "\nSigCgt:\t");
    const std::uint64_t harmless = bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGSTOP) |
                                   bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);  // signal(7)
    return (pending & bit(SIGKILL)) != 0 || (pending & ~spared & ~harmless) != 0;
}

Interrupts::Interrupts(PendingReplies& pending) : pending_(pending), thread_([this] { run(); }) {}

Interrupts::~Interrupts() {
    state_.lock()->ended = true;
    changed_.notify_all();
    thread_.join();
}

void Interrupts::note(std::uint64_t request) {
    auto state = state_.lock();
    if (state->waiting.size() < RequestSlots::count) {
        state->waiting.push_back({.request = request});
        changed_.notify_all();
    }
}

// Whether this request needs no further look.
bool Interrupts::is_over(Interrupted& interrupted) {
    const auto waiter = pending_.waiter(interrupted.request);
    if (!waiter) {
        return ++interrupted.looks >= looks_at_unknown_max;
    }
    if (!will_end(status_of(*waiter))) {
        return false;
    }
    pending_.interrupt(interrupted.request);
    return true;
}

// False at the end.
bool Interrupts::wait_for_any() {
    auto state = state_.lock();
    changed_.wait(state.lock(), [&state] { return state->ended || !state->waiting.empty(); });
    return !state->ended;
}

void Interrupts::run() {
    while (wait_for_any()) {
        auto interrupted = std::exchange(state_.lock()->waiting, {});
        std::erase_if(interrupted, [this](Interrupted& one) { return is_over(one); });
        auto state = state_.lock();
        state->waiting.insert(state->waiting.end(), interrupted.begin(), interrupted.end());
        changed_.wait_for(state.lock(), look_period, [&state] { return state->ended; });
    }
}

}  // namespace copper
