// An import on many nodes, simulated. bench/scale runs this, prints the table and draws the plot;
// docs/scale.md explains the figures.
//
//   build/bench/copper_scale --trace bench/traces/torch.json.gz --run first --nodes 64     one line of JSON
//   build/bench/copper_scale --large-file 10240 --nodes 1024     a file of so many MiB, read by all nodes
//   build/bench/copper_scale --arity     how long objects take to all of 8,192 nodes, by the arity of the
//   tree
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/sim/import_simulation.hpp"
#include "tests/sim/simulation.hpp"

namespace {

using namespace copper::sim;

// The profile that is replayed comes from an earlier job of so many nodes.
constexpr std::uint32_t recording_nodes = 2;

struct Words {
    std::string trace;
    std::string run = "first";
    std::string model = "lustre";
    std::uint32_t nodes = 64;
    std::uint32_t processes = 12;
    std::uint32_t cores = 0;
    double contention = 1;
    double slowness = 1;
    double pace = 1;
    double spread = 0;
    std::uint32_t nodes_per_straggler = 0;
    double straggler = 1.5;
    std::uint64_t seed = 1;
    std::string profile_trace;
    std::string contents;
    std::size_t parts = 1;
    std::uint32_t readers = 16;
    std::uint32_t large_file = 0;
    bool is_arity = false;
};

int fail(const std::string& reason) {
    std::cerr << "copper_scale: " << reason << "\n";
    return 1;
}

double seconds(microseconds time) {
    return std::chrono::duration<double>(time).count();
}

// All that a core does for Copper takes so many times as long as where the scenario's costs were measured.
ImportScenario slower(ImportScenario scenario, double slowness) {
    const auto scale = [slowness](auto& cost) {
        cost = std::chrono::round<std::decay_t<decltype(cost)>>(cost * slowness);
    };
    scale(scenario.network.overhead);
    scale(scenario.wake);
    scale(scenario.hit_lookup);
    scale(scenario.hit_read);
    scenario.answered_bytes_per_us /= slowness;
    scale(scenario.operation);
    scenario.network.checked_bytes_per_us /= slowness;
    scenario.bytes_per_us /= slowness;
    return scenario;
}

// `earlier_trace`: of the job whose profile is replayed.
ImportReport import(const std::string& run, const ImportTrace& trace, const ImportTrace& earlier_trace,
                    const ImportScenario& scenario) {
    if (run == "direct") {
        return import_directly(trace, scenario);
    }
    if (run == "first") {
        return import_through_copper(trace, scenario);
    }
    ImportScenario earlier = scenario;
    earlier.nodes = recording_nodes;
    earlier.seed += 1'000'000;
    return import_through_copper(trace, scenario, import_through_copper(earlier_trace, earlier).recorded);
}

tl::expected<ImportTrace, std::string> trace_of(const Words& words) {
    return words.large_file != 0 ? trace_of_a_large_file(words.large_file) : read_trace(words.trace);
}

int simulate(const Words& words) {
    const auto model = copper::bench::find_model(words.model);
    if (!model) {
        return fail(model.error());
    }
    const auto trace = trace_of(words);
    if (!trace) {
        return fail(trace.error());
    }
    const auto earlier = words.profile_trace.empty() ? trace : read_trace(words.profile_trace);
    if (!earlier) {
        return fail(earlier.error());
    }
    const ImportScenario scenario = slower({.seed = words.seed,
                                            .nodes = words.nodes,
                                            .processes = words.processes,
                                            .readers = words.readers,
                                            .filesystem = *model,
                                            .contents = words.contents,
                                            .pace = words.pace,
                                            .spread = words.spread,
                                            .nodes_per_straggler = words.nodes_per_straggler,
                                            .straggler = words.straggler,
                                            .parts = words.parts,
                                            .cores = words.cores,
                                            .contention = words.contention},
                                           words.slowness);
    const ImportReport report = import(words.run, *trace, *earlier, scenario);
    nlohmann::ordered_json operations;
    for (std::size_t i = 0; i < report.operations.size(); ++i) {
        operations[copper::bench::operation_names[i]] = report.operations[i];
    }
    std::cout << nlohmann::ordered_json{{"package", trace->package},
                                        {"run", words.run},
                                        {"nodes", words.nodes},
                                        {"processes", words.processes},
                                        {"parts", words.parts},
                                        {"seconds", seconds(report.duration)},
                                        {"seconds_median_node", seconds(report.median)},
                                        {"seconds_local", seconds(trace->duration_local)},
                                        {"operations", operations},
                                        {"bytes_read", report.bytes_read},
                                        {"messages", report.messages},
                                        {"bytes_sent", report.bytes_sent},
                                        {"cache_bytes_max", report.cache_bytes_max},
                                        {"most_reads_of_an_object", report.most_reads_of_an_object},
                                        {"direct_reads", report.direct_reads},
                                        {"wrong", report.wrong}}
              << std::endl;
    return 0;
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

int main(int count, char** arguments) {
    Words words;
    CLI::App app("Simulates an import on many nodes", "copper_scale");
    app.add_option("--trace", words.trace, "A recorded import (bench/storm --record)");
    app.add_option("--run", words.run, "direct, first, or replayed: through Copper with a profile")
        ->check(CLI::IsMember({"direct", "first", "replayed"}))
        ->capture_default_str();
    app.add_option("--model", words.model, "The filesystem: a preset of the emulation, or a TOML file")
        ->capture_default_str();
    app.add_option("--nodes", words.nodes)->check(CLI::Range(1, 1 << 20))->capture_default_str();
    app.add_option("--processes", words.processes, "Of each node")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--cores", words.cores, "All nodes share one machine with so many cores; 0: they do not")
        ->capture_default_str();
    app.add_option("--contention", words.contention,
                   "Work takes so many times as long while all other cores are busy")
        ->check(CLI::Range(1.0, 100.0))
        ->capture_default_str();
    app.add_option("--slowness", words.slowness,
                   "Messages and hits take so many times the processor time that docs/scale.md has")
        ->check(CLI::Range(0.01, 100.0))
        ->capture_default_str();
    app.add_option("--seed", words.seed, "Decides when nodes start, and how fast they are")
        ->capture_default_str();
    app.add_option("--pace", words.pace, "Nodes take so many times as long as the recorded one")
        ->check(CLI::Range(0.01, 100.0))
        ->capture_default_str();
    app.add_option("--spread", words.spread, "and up to this share longer, each another time")
        ->check(CLI::Range(0.0, 10.0))
        ->capture_default_str();
    app.add_option("--nodes-per-straggler", words.nodes_per_straggler,
                   "Of so many nodes, one takes --straggler times as long; 0: there is none")
        ->capture_default_str();
    app.add_option("--straggler", words.straggler)->check(CLI::Range(1.0, 100.0))->capture_default_str();
    app.add_option(
        "--profile-trace", words.profile_trace,
        "A recording of the job whose profile is replayed; the same as --trace if it is not given");
    app.add_option("--contents", words.contents,
                   "Where the recorded files lie on this machine: what they contain is guessed from")
        ->check(CLI::ExistingDirectory);
    app.add_option("--parts", words.parts, "Into which the import is cut to save memory")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    app.add_option("--readers", words.readers)->check(CLI::Range(1, 4096))->capture_default_str();
    app.add_option("--large-file", words.large_file,
                   "In the place of an import: all nodes read a file of so many MiB")
        ->check(CLI::Range(1, 1 << 20))
        ->excludes("--trace");
    app.add_flag("--arity", words.is_arity,
                 "How long objects take to all of 8,192 nodes, by the arity of the tree; nothing else");
    CLI11_PARSE(app, count, arguments);
    if (words.is_arity) {
        print_arities();
        return 0;
    }
    return words.trace.empty() && words.large_file == 0 ? fail("--trace FILE or --large-file MIB is missing")
                                                        : simulate(words);
}
