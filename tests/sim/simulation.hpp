// A whole job in one thread: thousands of nodes, each the real Protocol, Cache and wire format, over a
// simulated network, backing filesystem and clock. Everything random comes from one seed, so a run is
// replayed exactly by its seed.
//
// Each node runs clients that look names up and read files, one operation after the other. The oracle checks
// every answer against the history of the backing filesystem: that is where the invariants of docs/design.md
// are watched.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "cache/entry_resolver.hpp"
#include "collectives/protocol.hpp"
#include "tests/sim/events.hpp"
#include "tests/sim/oracle.hpp"
#include "tests/sim/simulated_store.hpp"

namespace copper::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Scenario {
    std::uint64_t seed = 1;
    // The job.
    std::uint32_t nodes = 4;
    std::size_t arity = 2;
    std::size_t readers = 4;
    std::uint32_t clients_per_node = 2;
    std::uint32_t operations_per_client = 40;
    std::uint64_t cache_budget_bytes = 1U << 30;
    milliseconds deadline{10000};
    enum class Reads {
        anything,
        own_file,         // each node one file, extent after extent
        own_small_files,  // each node every n-th of all files, each in one operation, as below
        all_small_files,
        all_from_own_start,    // the same, each node from another one on
        own_names,             // each client looks up names that nobody else does, in all directories
        own_names_in_batches,  // each client one name, as programs do: nodes then fetch many at a time
    };
    Reads reads = Reads::anything;
    enum class Extents { plain, coded };
    Extents extents = Extents::plain;  // coded: as LZ4, those that shrink
    StoreShape store = {};
    // The network and the backing filesystem: uniform delays, from almost nothing to these.
    microseconds message_delay_max{500};
    microseconds read_delay_max{2000};
    std::uint64_t reads_per_second = 0;  // of the filesystem, for all nodes; 0: no limit
    std::uint32_t nodes_that_guess = 0;  // the last ones: what their clients look up, a moment before
    std::size_t waits_max = Waiting::Options().entries_max;
    microseconds pause_between_operations_max{300};  // of a client
    // What a node takes to send a frame before it can send the next: so long, and its bytes at this rate (0:
    // none).
    microseconds send_time{0};
    std::uint64_t node_bytes_per_us = 0;
    // Faults.
    double loss = 0;               // of each frame sent
    double corruption = 0;         // of each frame sent: one bit flips
    double duplication = 0;        // of each frame sent: it arrives twice
    std::uint32_t partitions = 0;  // between two halves, or of one node
    microseconds partition_max{2000000};
    std::uint32_t one_way_cuts = 0;  // each of one node to another, which still reaches the first
    microseconds one_way_cut_max{2000000};
    std::uint32_t clock_jumps = 0;  // of a node's clock, forwards
    microseconds clock_jump_max{5000000};
    std::uint32_t refreshes = 0;  // of a directory or of everything, on each node at a time of its own
    std::uint32_t crashes = 0;
    std::uint32_t crashes_noticed = 0;  // of them: the others are told, each at a time of its own
    std::uint32_t pauses = 0;           // of a node, which then goes on
    microseconds pause_max{3000000};
    std::uint32_t stragglers =
        0;  // nodes, the last ones, that handle one message after the other in this time
    microseconds straggling_max{20000};
    std::uint32_t file_changes = 0;      // of any kind: bytes, attributes, names
    microseconds writing_max{500000};    // of a file in place
    std::uint32_t huge_changes = 0;      // of the names of the huge directory
    microseconds stall_begin{0};         // the backing filesystem answers nobody from then on
    microseconds stall{0};               // for so long
    std::uint32_t hung_directories = 0;  // only these, the first ones: they are a filesystem of their own
    std::uint32_t readers_lost = 0;      // of the trees, the first ones: each crashes in the middle of a read
    std::uint32_t broken_mounts = 0;  // nodes, the last ones, on which the backing filesystem is in trouble
    Trouble trouble = Trouble::unmounted;
    std::uint32_t slow_disks = 0;  // nodes, the first ones, whose reads take so much longer
    microseconds slow_disk_delay{0};
    std::uint32_t slow_nodes = 0;  // the first ones: each link to them carries so much
    std::uint64_t slow_bytes_per_ms = 0;
};

// What a seed alone makes: sizes, delays and (if asked for) faults all over their ranges.
enum class Faults { none, all };
Scenario random_scenario(std::uint64_t seed, Faults faults);
std::string describe(const Scenario& scenario);

struct Report {
    std::uint64_t operations = 0;
    std::uint64_t unfinished = 0;    // clients that still waited when nothing more could happen
    bool has_settled = false;        // nothing more could happen
    std::vector<std::string> wrong;  // answers that the oracle rejects, the first few
    std::vector<std::string> wrong_of_broken_mounts;  // the same, of programs on nodes that have one
    std::uint64_t later_versions = 0;  // answers of another version than the filesystem had at first
    microseconds slowest{0};
    microseconds slowest_guessed{0};         // of those that were guessed before
    microseconds slowest_elsewhere{0};       // of those that are not on the filesystem that hangs
    microseconds longest_at_a_straggler{0};  // until a message was handled
    std::uint64_t direct_reads = 0;
    std::uint64_t corrupt = 0;
    std::uint64_t retries = 0;
    std::uint64_t unshared_reads = 0;
    std::uint64_t duplicates = 0;
    std::uint64_t passed_on = 0;
    std::uint64_t resignations = 0;
    std::uint64_t coded = 0;  // extents read so
    std::uint64_t messages = 0;
    std::uint64_t membership_messages = 0;  // pings and their answers
    std::uint64_t membership_changes = 0;   // that a node found or heard of, over all nodes
    std::uint64_t working_messages = 0;
    std::uint64_t membership_per_second_max = 0;  // of these: sent and received by any node in any second
    std::uint64_t most_reads_of_an_object = 0;
    std::uint64_t bytes = 0;
    std::uint64_t pending_left = 0;            // Mover entries of live nodes at the end
    std::map<ObjectKey, std::uint64_t> reads;  // by all nodes
    std::uint64_t all_reads = 0;
    std::vector<std::size_t> roll_calls;  // answers that each roll call got
    std::size_t live_nodes = 0;
    std::uint64_t trace = 0;  // hash of all that happened, in order: equal for equal seeds
};

// A node, to what uses its cache in place of the simulation's own clients.
struct Surroundings {
    Cache& cache;
    const Trees& trees;
    Oracle& oracle;
    Report& report;
    std::function<TimePoint()> now;
    // Uniform, from almost nothing to `longest`. Nothing happens on a node that has crashed.
    std::function<void(microseconds longest, std::function<void()>)> later;
    std::function<std::uint64_t()> random;
    std::function<void(const std::string& what)> wrong;
};

class Programs {
  public:
    virtual ~Programs() = default;
    // Calls `done` once. The file may be absent.
    virtual void use(const std::string& path, std::function<void()> done) = 0;
};
using MakePrograms = std::function<std::unique_ptr<Programs>(const Surroundings&)>;

class Simulation {
  public:
    explicit Simulation(const Scenario& scenario, MakePrograms make_programs = nullptr);
    ~Simulation();

    Report run();

  private:
    class Node;
    void at(TimePoint when, std::function<void()> happen) { events_.at(when, std::move(happen)); }
    void after(microseconds delay, std::function<void()> happen) { at(now() + delay, std::move(happen)); }
    TimePoint now() const { return events_.now(); }
    microseconds random_delay(microseconds longest);
    bool chance(double probability);
    bool is_hung(const std::string& path) const;
    // When a call that begins now ends.
    TimePoint end_of_call(Rank reader, const ObjectKey& key);
    // How many a read makes, one after the other.
    std::uint32_t calls_of(const ObjectKey& key) const;
    void count(Rank from, Rank to, const Message& message);
    void transmit(Rank from, Rank to, const Frame& frame);
    void crash(Rank rank, bool noticed);
    void divide();
    void cut_one_way();
    void schedule_faults();
    void refresh();
    void change_a_file();
    std::string any_file();
    void schedule_roll_calls();
    void note(std::uint64_t what);

    const Scenario scenario_;
    std::mt19937_64 random_;
    Events events_;
    SimulatedStore store_;
    Oracle oracle_;
    Trees trees_;
    MakePrograms make_programs_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<bool> side_;  // of a partition, by node
    TimePoint divided_until_{};
    std::map<std::pair<Rank, Rank>, TimePoint> cut_until_;  // from the first one to the second
    TimePoint served_until_{};                              // by a filesystem with a rate
    std::map<Rank, TimePoint> sending_until_;
    std::map<std::tuple<Rank, Rank, Lane>, TimePoint> last_arrival_;
    std::map<std::pair<Rank, Rank>, std::uint64_t> backlog_;  // bytes on their way
    std::map<Rank, std::uint64_t> total_backlog_;             // by sender
    std::vector<std::uint64_t> membership_this_second_;       // by node
    std::int64_t this_second_ = 0;
    std::uint32_t readers_lost_ = 0;
    Report report_;
};

}  // namespace copper::sim
