// What goes wrong in a job of thousands of nodes that import at the same time, simulated with the protocol
// core of the daemon: how often the backing filesystem is read out of turn, and what it costs to know who is
// there. Times are simulated; counts are exact.
//
//   build/bench/copper_survival [NODES]      8192 unless told; the traffic of membership with 10,000
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/simulation.hpp"

namespace {

using namespace copper::sim;

Scenario import_on(std::uint32_t nodes) {
    return {.nodes = nodes,
            .arity = 4,
            .readers = 16,
            .clients_per_node = 1,
            .operations_per_client = 50,
            .store = {.directories = 5, .files_per_directory = 10, .file_bytes_max = 2000},
            .message_delay_max = microseconds(20),
            .read_delay_max = microseconds(2000)};
}

void print_row(const std::string& what, const Scenario& scenario) {
    const Report report = Simulation(scenario).run();
    std::uint64_t reads = 0;
    for (const auto& [key, count] : report.reads) {
        reads += count;
    }
    const auto objects = static_cast<double>(report.reads.size());
    std::printf(
        "| %6u | %-37s | %10llu | %7.0f | %7llu | %12llu | %9.4f%% | %10.1f | %10llu | %9.2f | %5llu |\n",
        scenario.nodes, what.c_str(), static_cast<unsigned long long>(report.operations), objects,
        static_cast<unsigned long long>(reads), static_cast<unsigned long long>(report.direct_reads),
        100 * static_cast<double>(report.direct_reads) / scenario.nodes / objects,
        static_cast<double>(report.slowest.count()) / 1e6,
        static_cast<unsigned long long>(report.membership_per_second_max),
        static_cast<double>(report.working_messages) / scenario.nodes,
        static_cast<unsigned long long>(report.unfinished + report.wrong.size()));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const auto nodes = static_cast<std::uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 8192);
    const auto nodes_of_membership = static_cast<std::uint32_t>(argc > 1 ? nodes : 10000);
    std::puts(
        "|  nodes | what happens                          | operations | objects |   reads | direct reads | "
        "of all     "
        "| "
        "slowest  s | pings/node/s | Working/node | wrong |");
    std::puts("|---|---|---|---|---|---|---|---|---|---|---|");
    Scenario stall = import_on(nodes);
    stall.stall_begin = milliseconds(2);
    stall.stall = milliseconds(30000);
    print_row("the filesystem stalls for 30 s", stall);

    Scenario long_stall = stall;
    long_stall.stall = milliseconds(60000);
    print_row("the filesystem stalls for 60 s", long_stall);

    Scenario death = import_on(nodes);
    death.readers_lost = 1;
    print_row("a reader dies", death);

    Scenario deaths = stall;
    deaths.readers_lost = 4;
    print_row("4 readers die, and it stalls for 30 s", deaths);

    Scenario membership = stall;
    membership.nodes = nodes_of_membership;
    membership.crashes = 4;
    membership.pauses = 4;
    membership.pause_max = std::chrono::seconds(10);
    print_row("30 s stall, 4 crashes, 4 pauses", membership);
}
