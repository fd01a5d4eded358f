// Carries messages between nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/doorbell.hpp"
#include "base/rate.hpp"
#include "cache/object.hpp"
#include "fabric/rank.hpp"

namespace copper {

// Messages in one lane between two nodes arrive in order. The lanes can overtake each other.
enum class Lane : std::uint8_t {
    eager,  // one small message; latency counts
    bulk,   // announced, and received in place
};
inline constexpr std::size_t lane_count = 2;
// The largest body that travels in the eager lane.
inline constexpr std::size_t eager_body_bytes_max = 64U << 10;

// A message as it travels: a small header, and a body of up to body_bytes_max that lands in memory of its
// own, where it stays. Both are immutable and shared, so one frame goes to many nodes without a copy.
struct Frame {
    Blob header;
    Blob body;                    // after arrival, it has a checksum if the fabric read all of it
    Lane lane = Lane::eager;      // REQUIRES: bulk if the body is larger than eager_body_bytes_max
    std::size_t saved_bytes = 0;  // by which coding shrank the body
};

inline constexpr std::size_t header_bytes_max = 8U << 10;
inline constexpr std::size_t body_bytes_max = object_bytes_max;

struct FabricCounters {
    std::uint64_t messages_sent = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t messages_received = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t bytes_saved = 0;  // by coding, of the bytes sent
    std::uint64_t dropped = 0;      // not sent because the node's queue was full
    std::uint64_t refused = 0;      // messages from outside this job
};

// One thread makes all calls.
class Fabric {
  public:
    using Receive = std::function<void(Rank from, Frame frame)>;
    using Lost = std::function<void(Rank rank)>;

    virtual ~Fabric() = default;

    virtual Rank self() const = 0;
    virtual std::uint32_t size() const = 0;

    // What people call a node: its host, or host#rank if several nodes share the host. From any thread.
    virtual std::string name_of(Rank rank) const { return "rank " + std::to_string(rank.value); }

    // Never blocks. Frames to one node arrive in order within a lane. Delivery is not confirmed.
    virtual void send(Rank to, const Frame& frame) = 0;

    // Bytes of frames to this node that send() took and that have not left yet.
    virtual std::uint64_t backlog_bytes(Rank to) const = 0;
    // The same for all nodes, except those that have taken nothing for a second.
    virtual std::uint64_t backlog_bytes() const = 0;

    // Makes progress without blocking. True if anything moved: then more may have arrived.
    virtual bool progress(const Receive& receive, const Lost& lost) = 0;

    // True if all frames given to send() have left.
    virtual bool flushed() const = 0;

    // How the fabric's thread learns that progress() has something to do.
    enum class Arrivals {
        none,    // nothing can ever arrive (one node)
        rung,    // all nodes are on this machine, and ring the doorbell
        silent,  // only by looking
    };
    virtual Arrivals arrivals() const = 0;

    // What the fabric's thread sleeps on. From any thread, which may ring it.
    virtual Doorbell& doorbell() { return own_doorbell_; }

    virtual FabricCounters counters() const = 0;

    // How fast this node sends large bodies.
    virtual Link link() const { return {}; }

  private:
    Doorbell own_doorbell_;
};

// For a job of one node without a launcher.
class SoloFabric final : public Fabric {
  public:
    Rank self() const override { return Rank{0}; }
    std::uint32_t size() const override { return 1; }
    void send(Rank, const Frame&) override {}
    std::uint64_t backlog_bytes(Rank) const override { return 0; }
    std::uint64_t backlog_bytes() const override { return 0; }
    bool progress(const Receive&, const Lost&) override { return false; }
    bool flushed() const override { return true; }
    Arrivals arrivals() const override { return Arrivals::none; }
    FabricCounters counters() const override { return {}; }
};

}  // namespace copper
