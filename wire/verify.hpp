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

// What nodes exchange: the objects of the trees, and what a directory on the way to a tree is. (Otherwise a
// node would lose a tree with its own mount.)
bool is_shared(const ObjectKey& key, const Trees& trees);

// The message, if its nodes exist, its objects are shared, and the content of an object fits its
// key: sizes, names, types and times like a filesystem's. Pure.
tl::expected<Message, WireError> verified(Message message, const Job& job);

}  // namespace copper
