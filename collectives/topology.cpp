#include "collectives/topology.hpp"

#include <algorithm>

namespace copper {
namespace {

// Positions are numbered breadth first from the root. In a plain tree the children of position p are
// arity * p + 1 and following; in a turned one position 1 is the root's only child, and the same holds below
// it.

// How far the positions below the root are shifted: by as many as there are inner ones, so that turns in a
// row have different inner nodes.
std::size_t shift_of(const TreeShape& shape) {
    const std::size_t below = shape.size - 1;
    const std::size_t inner = (below + shape.arity - 1) / shape.arity;
    // One more after each round, or nodes that divide evenly would keep their parts for ever.
    return below == 0 ? 0 : (shape.turn % below * inner + shape.turn / shape.arity) % below;
}

std::size_t position_of(const TreeShape& shape, std::size_t node) {
    const std::size_t position = (node + shape.size - shape.root) % shape.size;
    if (position == 0) {
        return 0;
    }
    const std::size_t below = shape.size - 1;
    return (position - 1 + below - shift_of(shape)) % below + 1;
}

std::size_t node_at(const TreeShape& shape, std::size_t position) {
    if (position != 0) {
        position = (position - 1 + shift_of(shape)) % (shape.size - 1) + 1;
    }
    return (position + shape.root) % shape.size;
}

// REQUIRES: position > 0
std::size_t parent_position(const TreeShape& shape, std::size_t position) {
    if (shape.turn == 0) {
        return (position - 1) / shape.arity;
    }
    return position == 1 ? 0 : (position - 2) / shape.arity + 1;
}

}  // namespace

std::optional<std::size_t> tree_parent(const TreeShape& shape, std::size_t self) {
    const std::size_t position = position_of(shape, self);
    if (position == 0) {
        return std::nullopt;
    }
    return node_at(shape, parent_position(shape, position));
}

std::vector<std::size_t> tree_children(const TreeShape& shape, std::size_t self) {
    const std::size_t position_of_self = position_of(shape, self);
    const bool is_stem = shape.turn != 0 && position_of_self == 0;
    const std::size_t first = shape.turn == 0 ? position_of_self * shape.arity + 1
                              : is_stem       ? 1
                                              : (position_of_self - 1) * shape.arity + 2;
    const std::size_t last = std::min(first + (is_stem ? 1 : shape.arity), shape.size);
    std::vector<std::size_t> children;
    for (std::size_t position = first; position < last; ++position) {
        children.push_back(node_at(shape, position));
    }
    return children;
}

std::size_t tree_depth(const TreeShape& shape, std::size_t self) {
    std::size_t depth = 0;
    for (std::size_t position = position_of(shape, self); position != 0;
         position = parent_position(shape, position)) {
        ++depth;
    }
    return depth;
}

}  // namespace copper
