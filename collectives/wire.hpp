// Messages as bytes. The format is the schema wire.fbs; what arrives is verified before it is used:
// structure, checksum, ranges, names and paths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tl/expected.hpp>

#include "collectives/fabric.hpp"
#include "collectives/message.hpp"

namespace copper {

// Why a frame was refused. `corrupt_object` is set if its header was sound and its body was not: then the
// object that was meant is known.
struct WireError {
    std::string reason;
    std::optional<ObjectKey> corrupt_object;
};

// The frame's body shares memory with an Extent's bytes, in both directions.
Frame encode(const Message& message);
tl::expected<Message, WireError> decode(const Frame& frame);

}  // namespace copper
