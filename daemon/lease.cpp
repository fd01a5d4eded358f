#include "daemon/lease.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <vector>

#include "base/unique_fd.hpp"

namespace copper {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds interval{60000};
constexpr milliseconds interval_per_node{100};

}  // namespace

void Lease::look(TimePoint now, std::uint32_t rank, std::uint32_t nodes, bool is_alone) {
    if (options_.lease.empty()) {
        return;
    }
    if (running_ != 0) {
        if (retry_eintr([&] { return ::waitpid(running_, nullptr, WNOHANG); }) != 0) {
            running_ = 0;
        }
        return;
    }
    const bool is_on_its_own = is_alone || !is_running(launcher_);
    if (rank != 0 && !is_on_its_own) {
        next_.reset();
        return;
    }
    const auto period = interval + nodes * interval_per_node;
    if (!next_) {
        next_ = now + period * (rank + 1) / nodes;  // not all nodes at once
    }
    if (now >= *next_) {
        next_ = now + period;
        ask(!is_on_its_own);
    }
}

void Lease::ask(bool for_all_nodes) {
    auto words = options_.lease;
    words.push_back("--mount=" + options_.mount);
    if (!for_all_nodes) {
        words.emplace_back("--local");
    }
    std::vector<char*> arguments;
    for (auto& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    // The supervisor blocks signals.
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (::posix_spawn(&running_, arguments.front(), nullptr, &attributes, arguments.data(), environ) != 0) {
        running_ = 0;
    }
    ::posix_spawnattr_destroy(&attributes);
}

}  // namespace copper
