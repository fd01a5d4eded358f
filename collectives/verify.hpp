// What the wire format alone cannot know of a message: whether it makes sense in this job.
#pragma once

#include <cstdint>

#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "collectives/message.hpp"
#include "collectives/wire.hpp"

namespace copper {

struct Job {
    std::uint32_t nodes = 1;
    const Trees& trees;
};

// The message, if it speaks of nodes that there are and of objects within the trees, and if the content of an
// object can be what its key names: sizes, names, types and times as a filesystem has them. Pure.
tl::expected<Message, WireError> verified(Message message, const Job& job);

}  // namespace copper
