// The queues of frames to other nodes. Without MPI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/envelope.hpp"

namespace copper {

// The largest message: one header and one eager body, or several smaller ones.
inline constexpr std::size_t message_bytes_max =
    envelope_bytes + frame_overhead_bytes + header_bytes_max + eager_body_bytes_max;

// A queue per lane and node. Eager frames that wait for an earlier message travel together in the next one.
// Bulk frames travel alone, several at a time.
class Outbox {
  public:
    struct Options {
        std::size_t bulk_in_flight_max = 8;  // messages to a node
        std::size_t frames_max = 16384;      // waiting for a node, in each lane
        std::size_t bytes_max = 256U << 20;  // for a node, including those in flight
    };
    Outbox(Options options, std::uint32_t nodes) : options_(options), peers_(nodes) {}

    // False if refused: the node is lost, the frame is too large, or the queue is full.
    [[nodiscard]] bool push(Rank to, const Frame& frame);

    // The frames of the next message to this node, which are in flight until sent(). Nothing if none may go
    // now.
    std::vector<Frame> next(Rank to, Lane lane);
    void sent(Rank to, Lane lane, std::size_t bytes);

    // Sends nothing more to this node.
    void lose(Rank rank);
    bool is_lost(Rank rank) const { return peers_[rank.value].lost; }

    // Of frames that wait or are in flight.
    std::uint64_t backlog_bytes(Rank to) const { return peers_[to.value].backlog_bytes; }
    std::uint64_t backlog_bytes() const { return backlog_bytes_; }  // to all nodes that are not lost

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

// A frame's bytes, as counted everywhere.
std::size_t bytes_of(const Frame& frame);

}  // namespace copper
