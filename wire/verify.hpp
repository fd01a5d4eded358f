// Checks what the wire format alone cannot: whether a message makes sense in this job.
#pragma once

#include <cstdint>

#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "wire/message.hpp"
#include "wire/wire.hpp"

namespace copper {

struct Job {
    std::uint32_t nodes = 1;
    const Trees& trees;
};

// The message, if its nodes exist, its objects are within the trees, and the content of an object fits its
// key: sizes, names, types and times like a filesystem's. Pure.
tl::expected<Message, WireError> verified(Message message, const Job& job);

}  // namespace copper
