// Messages as bytes; wire.cpp describes the format. Everything that arrives is verified before use:
// structure, checksum, ranges, names and paths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "fabric/fabric.hpp"
#include "wire/message.hpp"

namespace copper {

// A Publication that arrived damaged, as named by its header.
struct Damaged {
    ObjectKey key;
    Lane lane = Lane::eager;
    std::uint64_t sequence = 0;
};

// Why a frame was refused. `damaged` is set if the header was valid and the body was not.
struct WireError {
    std::string reason;
    std::optional<Damaged> damaged;
};

inline tl::unexpected<WireError> refuse(std::string reason, std::optional<Damaged> damaged = std::nullopt) {
    return tl::unexpected(WireError{std::move(reason), std::move(damaged)});
}

// The frame's body shares memory with an Extent's bytes, in both directions.
Frame encode(const Message& message);
tl::expected<Message, WireError> decode(const Frame& frame);

}  // namespace copper
