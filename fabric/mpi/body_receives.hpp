// The bodies of bulk frames that arrive at this node.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/checksum.hpp"
#include "base/clock.hpp"
#include "cache/extent_memory.hpp"
#include "fabric/fabric.hpp"

namespace copper {

// The fabric's thread makes all calls.
class BodyReceives {
  public:
    struct Options {
        std::size_t in_flight_max = 32;             // at a time, from all senders
        std::chrono::milliseconds deadline{30000};  // a node whose body takes longer is lost
        std::shared_ptr<ExtentMemory> memory;       // for them
    };
    // `counters` must outlive this.
    BodyReceives(Options options, FabricCounters& counters)
        : options_(std::move(options)), counters_(counters) {}

    // The next body of this node belongs to that header.
    void announce(Rank from, Blob header, std::size_t bytes);

    // Frames whose bodies are there, in each node's order. True if anything moved. Adds to `lost`.
    bool take(const Fabric::Receive& receive, std::set<Rank>& lost);

    void lose(Rank rank);
    bool empty() const { return bodies_.empty(); }

  private:
    struct Body {
        Rank from;
        Frame frame;
        std::shared_ptr<std::byte[]> memory;
        std::vector<MPI_Request> pieces;  // the posted ones
        std::size_t taken = 0;            // pieces
        RunningChecksum checksum;         // of them
        TimePoint since;                  // when it was posted
        bool is_posted() const { return memory != nullptr; }
        bool is_complete() const;
    };

    void post(Body& body, TimePoint now);
    bool take_pieces(Body& body);

    const Options options_;
    FabricCounters& counters_;
    std::list<Body> bodies_;  // in the order of their announcements
    std::size_t posted_ = 0;
    std::list<Body> abandoned_;  // of lost nodes: MPI may use their memory until the end
};

}  // namespace copper
