// How frames travel together in one message between two nodes, and how a message proves where it comes from.
//
// A message is an envelope, then for each frame a few bytes about it and its header, then the bodies of the
// eager ones. The envelope tells the link and the message's number on it. Its tag is the SipHash-2-4 (128
// bits; Aumasson and Bernstein, INDOCRYPT 2012) of all but the bodies, keyed with the job's key: who does not
// know that cannot make a message, send one of another link, or send one again. A header vouches for its body
// (wire.hpp).
//
// Where a job has no key the tag is zero, and a node with a key and one without refuse each other's messages.
//
// Pure, and without MPI.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/job_key.hpp"
#include "collectives/fabric.hpp"

namespace copper {

// One of the messages that a node sends to another one.
struct MessageName {
    Rank from;
    Rank to;
    std::uint64_t number = 0;  // from 0 on, without a gap
};

// What a frame takes in a message besides its header and eager body, and a message besides its frames.
inline constexpr std::size_t frame_overhead_bytes = 16;
inline constexpr std::size_t envelope_bytes = 40;

class Sealer {
  public:
    explicit Sealer(const std::optional<JobKey>& key);

    // Writes the message, instead of what it holds; its memory is used again.
    void seal(const MessageName& name, std::span<const Frame> frames, std::vector<std::byte>& message) const;

    // Whether the message is that one, and whole but for its bodies.
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
    // Nothing if what is left makes no sense. REQUIRES: !is_done()
    std::optional<Part> next();

  private:
    std::span<const std::byte> heads_, bodies_;  // what is left
};

}  // namespace copper
