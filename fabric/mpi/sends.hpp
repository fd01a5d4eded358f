// The messages that leave this node, and their bodies.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <set>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/rate.hpp"
#include "fabric/envelope.hpp"
#include "fabric/outbox.hpp"

namespace copper {

// The fabric's thread makes all calls.
class Sends {
  public:
    struct Options {
        Rank self;
        std::uint32_t nodes = 1;
        std::size_t bulk_in_flight_per_peer_max = 8;  // of small messages: one
        std::chrono::milliseconds deadline{30000};    // a node that takes longer is lost
    };
    using Ring =
        std::function<void(Rank)>;  // wakes the receiver, which has to look while a message is under way

    // Messages go through the communicator `messages`, bodies through MPI_COMM_WORLD. The references must
    // outlive this.
    Sends(Options options, MPI_Comm messages, const Sealer& sealer, FabricCounters& counters, Ring ring)
        : options_(options),
          messages_(messages),
          sealer_(sealer),
          counters_(counters),
          ring_(std::move(ring)),
          outbox_({.bulk_in_flight_max = options.bulk_in_flight_per_peer_max}, options.nodes),
          next_number_(options.nodes) {}

    // Never blocks. A frame that cannot wait is counted as dropped.
    void send(Rank to, const Frame& frame);

    // Ends those that have left. True if there were any. Adds to `lost`.
    bool complete(std::set<Rank>& lost);

    // Sends nothing more to this node.
    void lose(Rank rank);
    bool is_lost(Rank rank) const { return outbox_.is_lost(rank); }

    bool empty() const { return under_way_.empty(); }
    std::uint64_t backlog_bytes(Rank to) const { return outbox_.backlog_bytes(to); }
    std::uint64_t backlog_bytes() const;  // except to nodes that have taken nothing for a second
    double bytes_per_second() const { return rate_.bytes_per_second(); }

  private:
    using Message = std::vector<std::byte>;
    struct Outgoing {
        Rank to;
        Lane lane;
        std::size_t bytes;
        Message message;
        MPI_Request request = MPI_REQUEST_NULL;
        Blob body;  // of a bulk frame
        std::vector<MPI_Request> pieces;
        TimePoint since;
    };

    void start_waiting(Rank to, Lane lane);
    void start(Rank to, Lane lane, std::span<const Frame> frames);
    void measure(const Outgoing& sent);
    Message spare_message();

    const Options options_;
    const MPI_Comm messages_;
    const Sealer& sealer_;
    FabricCounters& counters_;
    const Ring ring_;
    Outbox outbox_;
    std::vector<std::uint64_t> next_number_;  // of a message, by rank
    std::list<Outgoing> under_way_;
    std::list<Outgoing> abandoned_;  // to lost nodes: MPI may use their memory until the end
    std::set<Rank> failed_;          // a send to them could not begin
    std::vector<Message> spare_messages_;
    LinkRate rate_;
    TimePoint last_bulk_sent_;
};

}  // namespace copper
