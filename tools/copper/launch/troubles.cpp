#include "tools/copper/launch/troubles.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "base/host_name.hpp"
#include "daemon/control/version.hpp"
#include "tools/copper/common/process.hpp"
#include "tools/copper/nodes/node_list.hpp"

namespace copper::cli {

namespace {

constexpr std::string_view answer_prefix = "copper-daemons ";  // "copper-daemons HOST COUNT [WHY NOT]"
// For all nodes together: the launch goes on meanwhile, and what comes later is no failure.
constexpr std::chrono::milliseconds look_patience{10000};
constexpr std::size_t asked_alone_max = 16;  // one that plainly fails is reason enough

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

// Empty if the program starts.
std::string why_no_daemon_starts(const std::string& program) {
    const auto output = capture({program, "--version"}, question_patience);
    if (output && output->text.find(version_text("copperd")) != std::string::npos) {
        return {};
    }
    const auto reason = output ? output->text.substr(0, output->text.find('\n')) : output.error().reason;
    return reason.empty() ? describe_status(output->status) : reason;
}

Trouble without_program(const std::string& host, const std::string& reason) {
    return {.host = host, .reason = "copperd cannot be started there: " + reason};
}

// What the nodes answer.
struct Seen {
    std::vector<Trouble> without_program;
    std::set<std::string> with_daemon, without_daemon;  // hosts
};

void add(Seen& seen, const std::string& host, std::size_t count, const std::string& reason) {
    if (!reason.empty()) {
        auto trouble = without_program(host, reason);
        trouble.answers = true;
        seen.without_program.push_back(std::move(trouble));
    } else {
        (count == 0 ? seen.without_daemon : seen.with_daemon).insert(host);
    }
}

// Nodes that say nothing are late, or one of them keeps the launcher from ending. So some are asked alone,
// but not if none of many nodes says anything: then they are late.
void ask_others(const Plan& plan, Seen& seen) {
    const auto others = hosts_without(plan.placement.hosts, {host_name()});
    if (others.empty() || plan.on_this_machine_only()) {
        return;
    }
    const auto output =
        ask_all(plan.launcher, others, {own_program(), "doctor", "--local", "--launch", plan.daemon.launch},
                look_patience);
    if (!output) {
        return;
    }
    std::vector<std::string> heard;
    for (const auto& line : lines_behind(answer_prefix, output->text)) {
        std::istringstream words(line);
        std::string host, reason;
        std::size_t count = 0;
        if (words >> host >> count) {
            std::getline(words >> std::ws, reason);
            add(seen, host, count, reason);
            heard.push_back(host);
        }
    }
    auto asked = hosts_without(others, heard);
    if (asked.empty() || (heard.empty() && asked.size() > asked_alone_max)) {
        return;
    }
    asked.resize(std::min(asked.size(), asked_alone_max));
    if (const auto well = hosts_without(others, asked); !well.empty()) {
        asked.push_back(well.front());  // shows whether the nodes have a remote shell
    }
    for (const auto& trouble :
         troubles_on_hosts(plan.launcher, asked, {plan.copperd, "--version"}, version_text("copperd"))) {
        seen.without_program.push_back(without_program(trouble.host, trouble.reason));
    }
}

}  // namespace

std::vector<Trouble> NodeLooks::look() {
    Seen seen;
    const bool one_machine = plan_.placement.on_this_machine != 0;
    if (one_machine || hosts_without({host_name()}, plan_.placement.hosts).empty()) {
        const auto here = count_daemons(plan_.daemon.launch);
        const auto wanted = one_machine ? plan_.nodes() : 1;
        if (here < wanted) {
            seen.without_daemon.insert(host_name());
        }
        if (here > 0) {
            seen.with_daemon.insert(host_name());
        }
    }
    ask_others(plan_, seen);
    const auto before = std::exchange(without_daemon_, seen.without_daemon);
    // If none runs anywhere, the launcher has not started them yet.
    if (!seen.without_program.empty() || seen.with_daemon.empty()) {
        return seen.without_program;
    }
    std::vector<Trouble> troubles;
    for (const auto& host : seen.without_daemon) {
        if (before.contains(host)) {
            troubles.push_back(
                {.host = host, .reason = "copperd ended there before all nodes served", .answers = true});
        }
    }
    return troubles;
}

Result<void> print_daemons(const std::string& launch) {
    const auto count = count_daemons(launch);
    std::string reason;
    if (count == 0) {
        const auto program = find_daemon();
        reason = program ? why_no_daemon_starts(*program) : program.error().reason;
    }
    std::cout << answer_prefix << host_name() << " " << count << " " << reason << std::endl;
    return {};
}

}  // namespace copper::cli
