// A cold import on 64 to 8,192 nodes, simulated with the protocol core of the daemon: what it costs the
// backing filesystem, and what a node sends. Times are simulated; the rest are exact counts.
//
//   build/bench/copper_scale [NODES...]
//   build/bench/copper_scale --arity     how long objects take to all of 8,192 nodes, by the arity of the
//   tree
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/sim/simulation.hpp"

namespace {

using namespace copper::sim;

void print_row(std::uint32_t nodes) {
    const Scenario scenario{.nodes = nodes,
                            .arity = 4,
                            .readers = 16,
                            .clients_per_node = 1,
                            .operations_per_client = 100,
                            .store = {.directories = 10, .files_per_directory = 10, .file_bytes_max = 20000},
                            .message_delay_max = microseconds(20),
                            .read_delay_max = microseconds(2000)};
    const Report report = Simulation(scenario).run();
    std::uint64_t reads = 0;
    for (const auto& [key, count] : report.reads) {
        reads += count;
    }
    const double objects = static_cast<double>(report.reads.size());
    std::printf("| %6u | %10llu | %8llu | %8.0f | %14.2f | %17.2f | %10.1f | %5llu |\n", nodes,
                static_cast<unsigned long long>(report.operations), static_cast<unsigned long long>(reads),
                objects, static_cast<double>(report.messages) / objects / nodes,
                static_cast<double>(report.bytes) / nodes / (1 << 20),
                static_cast<double>(report.slowest.count()) / 1000,
                static_cast<unsigned long long>(report.unfinished + report.wrong.size()));
}

// The slowest of the first operations on files of so many bytes, in ms: all nodes ask for everything at once.
double slowest_ms(std::size_t arity, std::uint32_t bytes) {
    // A message costs its sender 1 us of the core, and crosses the network and waits for the receiver's core
    // up to 10 us; links carry 10 GB/s.
    const Report report =
        Simulation({.nodes = 8192,
                    .arity = arity,
                    .readers = 16,
                    .clients_per_node = 1,
                    .operations_per_client = 10,
                    .store = {.directories = 16, .files_per_directory = 1, .file_bytes_max = bytes},
                    .message_delay_max = microseconds(10),
                    .read_delay_max = microseconds(10),
                    .send_time = microseconds(1),
                    .node_bytes_per_us = 10000})
            .run();
    return static_cast<double>(report.slowest.count()) / 1000;
}

void print_arities() {
    std::puts("| arity | slowest ms, files of up to 20 kB | slowest ms, files of up to 1 MiB |");
    std::puts("|---|---|---|");
    for (const std::size_t arity : {2U, 4U, 8U, 16U, 32U}) {
        std::printf("| %5zu | %32.3f | %32.3f |\n", arity, slowest_ms(arity, 20000),
                    slowest_ms(arity, 1U << 20));
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "--arity") {
        print_arities();
        return 0;
    }
    std::vector<std::uint32_t> sizes;
    for (int i = 1; i < argc; ++i) {
        sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
    }
    if (sizes.empty()) {
        sizes = {64, 512, 2048, 8192};
    }
    std::puts(
        "|  nodes | operations | PFS reads |  objects | messages/object/node | MiB sent per node | slowest "
        "ms | wrong |");
    std::puts("|---|---|---|---|---|---|---|---|");
    for (const std::uint32_t nodes : sizes) {
        print_row(nodes);
    }
}
