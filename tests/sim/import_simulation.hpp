// A recorded import on many nodes, simulated: directly, and through Copper with the daemon's own Protocol,
// Cache, EntryResolver, Guesses, ReadAhead and Replay. docs/scale.md says what the model is, and where its
// figures come from.
//
// All processes of a node do the same at the same time, so one replay of the trace stands for them: the
// kernel asks the daemon for each thing once, however many processes wait for it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/slow_filesystem/model.hpp"
#include "bench/slow_filesystem/shared_state.hpp"
#include "profile/profile.hpp"
#include "tests/sim/import_trace.hpp"

namespace copper::sim {

using std::chrono::nanoseconds;

// LogGP (Alexandrov, Ionescu, Schauser and Scheiman, SPAA 1995).
struct Network {
    nanoseconds latency{2000};  // L
    nanoseconds overhead{
        4000};  // o: of the progress loop, for each message sent or received, and each event of its own node
    nanoseconds gap{100};                  // g
    double bytes_per_us = 25'000;          // 1/G
    double checked_bytes_per_us = 35'000;  // what the progress loop verifies of what arrives
};

struct ImportScenario {
    std::uint64_t seed = 1;
    std::uint32_t nodes = 2;
    std::uint32_t processes = 1;  // per node
    std::uint32_t readers = 16;
    bench::Model filesystem;
    // Where the recorded files lie on this machine. Without it, nothing is guessed from what they contain.
    std::string contents{};
    Network network = {};
    microseconds start_skew{100'000};  // the processes of a node start within this time
    // All that a node does takes `pace` times as long as recorded and assumed, up to a share of `spread`
    // more, differently on each node, and of every so many nodes, one takes `straggler` times as long.
    double pace = 1;
    double spread = 0;
    std::uint32_t nodes_per_straggler = 0;  // 0: there is none
    double straggler = 1;
    // The import is cut into so many parts, which are simulated one after the other: a node then holds the
    // state of one part only. At the end of a part, all nodes wait until each of them has nothing more to do,
    // and what they have learnt about each other's use of files begins anew.
    std::size_t parts = 1;
    // The processor time of a request to a FUSE filesystem and its answer. It is part of the trace; what the
    // daemon is not asked for does not cost it.
    microseconds request{15};
    // Of the daemon, for what its cache answers: a name, a part of a file, and each byte of that.
    nanoseconds hit_lookup{600};
    nanoseconds hit_read{5'000};
    double answered_bytes_per_us = 1'500;
    // All nodes and the filesystem share one machine with so many cores. 0: each node has enough of its own.
    std::uint32_t cores = 0;
    double contention = 1;  // work takes so many times as long while all other cores are busy
    // On such a machine, whatever wakes a progress loop that sleeps: a message (its sender rings), or an
    // event of its own node.
    microseconds wake{36};
    // Of such a machine, for each operation and byte of the emulated filesystem.
    microseconds operation{40};
    double bytes_per_us = 2'000;
};

struct ImportReport {
    microseconds duration{0};  // until the last process is done
    microseconds median{0};    // until those of half of the nodes are done
    std::array<std::uint64_t, bench::operation_names.size()> operations{};
    std::uint64_t bytes_read = 0;
    std::uint64_t messages = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t cache_bytes_max = 0;  // of a node
    std::uint64_t most_reads_of_an_object = 0;
    std::uint64_t direct_reads = 0;
    std::uint64_t wrong = 0;    // answers, and programs that never ended
    std::uint64_t history = 0;  // hash of all messages and their times: equal for equal seeds

    std::vector<Profile> recorded{};  // of each part

    // The next part of the same import.
    void add(const ImportReport& next);
    std::uint64_t all_operations() const;
};

ImportReport import_directly(const ImportTrace& trace, const ImportScenario& scenario);

// `recorded`: by an earlier import (ImportReport::recorded); it is replayed.
ImportReport import_through_copper(const ImportTrace& trace, const ImportScenario& scenario,
                                   std::span<const Profile> recorded = {});

}  // namespace copper::sim
