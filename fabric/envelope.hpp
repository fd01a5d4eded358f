// How frames travel together in one message between two nodes, and how a message proves its origin.
//
// A message is an envelope, then for each frame a few bytes about it and its header, then the bodies of the
// eager frames. The envelope names the link and the message's number on it. Its tag is the SipHash-2-4 (128
// bits; Aumasson and Bernstein, INDOCRYPT 2012) of everything but the bodies, keyed with the job's key.
// Without the key, nobody can make a message, replay one, or move one to another link. A header vouches for
// its body (wire.hpp).
//
// If the job has no key, the tag is zero. A node with a key and one without refuse each other's messages.
//
// Pure, and without MPI.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/job_key.hpp"
#include "fabric/fabric.hpp"

namespace copper {

// One of the messages that a node sends to another one.
struct MessageName {
    Rank from;
    Rank to;
    std::uint64_t number = 0;  // from 0 on, without gaps
};

// Overhead per frame; overhead per message.
inline constexpr std::size_t frame_overhead_bytes = 16;
inline constexpr std::size_t envelope_bytes = 40;

class Sealer {
  public:
    explicit Sealer(const std::optional<JobKey>& key);

    // Writes the message over the old content of `message`, whose memory is reused.
    void seal(const MessageName& name, std::span<const Frame> frames, std::vector<std::byte>& message) const;

    // Whether this is that message, complete except for its bodies.
    bool is_sealed(const MessageName& name, std::span<const std::byte> message) const;

  private:
    using Tag = std::array<std::byte, 16>;
    Tag tag_of(std::span<const std::byte> bytes) const;

    std::optional<std::array<std::byte, 16>> key_;
};

// Takes a message apart. REQUIRES: is_sealed().
class MessageReader {
  public:
    explicit MessageReader(std::span<const std::byte> message);

    struct Part {
        Lane lane;
        std::span<const std::byte> header;
        std::span<const std::byte> body;  // of an eager frame
        std::size_t body_bytes = 0;
    };
    bool is_done() const { return heads_.empty() && bodies_.empty(); }
    // Nothing if the rest makes no sense. REQUIRES: !is_done()
    std::optional<Part> next();

  private:
    std::span<const std::byte> heads_, bodies_;  // the rest
};

}  // namespace copper
