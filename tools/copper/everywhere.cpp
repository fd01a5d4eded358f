#include "tools/copper/everywhere.hpp"

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/host_name.hpp"
#include "tools/copper/process.hpp"

namespace copper::cli {

namespace {

constexpr std::size_t hosts_at_once_max = 32;
constexpr std::chrono::milliseconds reach_patience{10000};

// Those for which `works` is false, in order.
std::vector<std::string> failing(const std::vector<std::string>& hosts,
                                 const std::function<bool(const std::string&)>& works) {
    std::vector<char> bad(hosts.size(), 0);
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < hosts.size(); i = next++) {
            bad[i] = works(hosts[i]) ? 0 : 1;
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < std::min(hosts.size(), hosts_at_once_max); ++i) {
        threads.emplace_back(work);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    std::vector<std::string> failed_hosts;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (bad[i] != 0) {
            failed_hosts.push_back(hosts[i]);
        }
    }
    return failed_hosts;
}

bool works_on(const Launcher& launcher, const std::vector<std::string>& hosts,
              const std::vector<std::string>& command) {
    const Placement placement{.hosts = hosts, .host_file = "", .on_this_machine = 0};
    const auto output = capture(launch_command(launcher, placement, command), host_patience);
    return output && succeeded(*output);
}

}  // namespace

std::string own_program() {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::vector<std::string> run_on_hosts(const Launcher& launcher, const std::vector<std::string>& hosts,
                                      const std::vector<std::string>& command) {
    if (hosts.empty() || launcher.family == Family::alone) {
        return {};
    }
    if (hosts.size() <= hosts_on_command_line_max && works_on(launcher, hosts, command)) {
        return {};
    }
    return failing(hosts, [&](const std::string& host) { return works_on(launcher, {host}, command); });
}

std::vector<std::string> unreachable_hosts(const Launcher& launcher, const std::vector<std::string>& hosts) {
    const auto agent = reach_command(launcher.extra);
    return failing(hosts, [&](const std::string& host) {
        auto command = agent;
        command.insert(command.end(), {host, "true"});
        const auto output = capture(command, reach_patience);
        return host == host_name() || (output && succeeded(*output));
    });
}

}  // namespace copper::cli
