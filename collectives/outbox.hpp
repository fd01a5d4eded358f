// What waits to be sent to other nodes. Without MPI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "collectives/envelope.hpp"

namespace copper {

// The largest message: one header and one eager body, or several smaller ones.
inline constexpr std::size_t message_bytes_max =
    envelope_bytes + frame_overhead_bytes + header_bytes_max + eager_body_bytes_max;

// A queue for each lane of each node. Eager frames that wait while another message is on its way go together
// in the next one; bulk frames go alone, several at a time.
class Outbox {
  public:
    struct Options {
        std::size_t bulk_in_flight_max = 8;  // messages to a node
        std::size_t frames_max = 16384;      // that wait for a node, in each lane
        std::size_t bytes_max = 256U << 20;  // for a node, with what is in flight
    };
    Outbox(Options options, std::uint32_t nodes) : options_(options), peers_(nodes) {}

    // False if it is not taken: the node is lost, the frame is larger than one may be, or too much waits.
    [[nodiscard]] bool push(Rank to, const Frame& frame);

    // What goes into the next message to this node; nothing if nothing may go now. It is in flight until
    // sent().
    std::vector<Frame> next(Rank to, Lane lane);
    void sent(Rank to, Lane lane, std::size_t bytes);

    // Nothing goes there any more.
    void lose(Rank rank);
    bool is_lost(Rank rank) const { return peers_[rank.value].lost; }

    // Of frames that wait or are in flight.
    std::uint64_t backlog_bytes(Rank to) const { return peers_[to.value].backlog_bytes; }
    std::uint64_t backlog_bytes() const { return backlog_bytes_; }  // to all that are not lost

  private:
    struct Queue {
        std::size_t in_flight = 0;
        std::deque<Frame> waiting;
    };
    struct Peer {
        std::array<Queue, lane_count> queues;
        std::uint64_t backlog_bytes = 0;
        bool lost = false;
    };
    Queue& queue(Rank to, Lane lane) { return peers_[to.value].queues[static_cast<std::size_t>(lane)]; }

    const Options options_;
    std::vector<Peer> peers_;
    std::uint64_t backlog_bytes_ = 0;
};

// What counts as a frame's bytes everywhere.
std::size_t bytes_of(const Frame& frame);

}  // namespace copper
