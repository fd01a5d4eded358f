#include "tools/copper/launch_troubles.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/host_name.hpp"
#include "daemon/control/version.hpp"
#include "tools/copper/node_list.hpp"

namespace copper::cli {

namespace {

constexpr std::string_view answer_prefix = "copper-daemons ";  // "copper-daemons HOST COUNT"

// Containers, and hosts made of namespaces, may see each other's processes.
bool is_elsewhere(const std::filesystem::path& process) {
    std::error_code error;
    const auto its = std::filesystem::read_symlink(process / "ns/uts", error);
    return !error && its != std::filesystem::read_symlink("/proc/self/ns/uts", error);
}

// A daemon records itself only after MPI_Init. Until then, its command line has the launch. A supervisor has
// the same one, but another name. A child that will run another program (fusermount3) has both until then, so
// there may be more than daemons.
std::size_t count_daemons(const std::string& launch) {
    std::size_t count = 0;
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
        std::string name, words;
        std::getline(std::ifstream(process.path() / "comm"), name);
        if (name == "copperd" && !is_elsewhere(process.path())) {
            std::getline(std::ifstream(process.path() / "cmdline"), words);
            count += words.find("--launch=" + launch) != std::string::npos ? 1 : 0;
        }
    }
    return count;
}

Trouble without_daemon(const std::string& host) {
    return {.host = host, .reason = "copperd ended there before all nodes served", .answers = true};
}

// The other nodes that say that no daemon runs there. (One that says nothing may be slow.)
std::vector<Trouble> others_without_daemon(const Plan& plan) {
    std::vector<Trouble> troubles;
    std::istringstream lines(
        said_by_all(plan.launcher, hosts_without(plan.placement.hosts, {host_name()}),
                    {own_program(), "doctor", "--local", "--launch", plan.daemon.launch}));
    for (std::string line; std::getline(lines, line);) {
        // A launcher may put something in front of a line.
        if (const auto start = line.find(answer_prefix); start != std::string::npos) {
            std::istringstream words(line.substr(start + answer_prefix.size()));
            std::string host;
            std::size_t count = 0;
            if (words >> host >> count && count == 0) {
                troubles.push_back(without_daemon(host));
            }
        }
    }
    return troubles;
}

}  // namespace

std::vector<Trouble> nodes_without_program(const Plan& plan) {
    if (plan.on_this_machine_only()) {
        return {};
    }
    auto troubles = troubles_on_hosts(plan.launcher, plan.placement.hosts, {plan.copperd, "--version"},
                                      version_text("copperd"));
    for (auto& trouble : troubles) {
        trouble.reason = "copperd cannot be started there: " + trouble.reason;
    }
    return troubles;
}

std::vector<Trouble> nodes_without_daemon(const Plan& plan) {
    const auto here = count_daemons(plan.daemon.launch);
    if (plan.placement.on_this_machine != 0) {
        return here == 0 || here >= plan.nodes() ? std::vector<Trouble>()
                                                 : std::vector{without_daemon(host_name())};
    }
    auto troubles = others_without_daemon(plan);
    if (here == 0 && hosts_without({host_name()}, plan.placement.hosts).empty()) {
        troubles.push_back(without_daemon(host_name()));
    }
    return troubles.size() < plan.nodes() ? troubles : std::vector<Trouble>();
}

Result<void> print_daemons(const std::string& launch) {
    std::cout << answer_prefix << host_name() << " " << count_daemons(launch) << std::endl;
    return {};
}

}  // namespace copper::cli
