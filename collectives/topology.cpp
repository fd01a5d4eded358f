#include "collectives/topology.hpp"

namespace copper {
namespace {

// Positions are numbered level by level from the root, which has position 0.
std::uint64_t position_of(const TreeShape& shape, Rank rank) {
    return (std::uint64_t{rank.value} + shape.size - shape.first) % shape.size;
}

Rank rank_at(const TreeShape& shape, std::uint64_t position) {
    return Rank{static_cast<std::uint32_t>((position + shape.first) % shape.size)};
}

}  // namespace

std::uint32_t tree_root(std::uint32_t size, std::uint32_t tree) {
    return static_cast<std::uint32_t>(std::uint64_t{tree} * size / tree_count(size));
}

std::optional<Rank> tree_parent(const TreeShape& shape, Rank self) {
    const std::uint64_t position = position_of(shape, self);
    return position == 0 ? std::nullopt : std::optional(rank_at(shape, (position - 1) / shape.arity));
}

std::vector<Rank> tree_children(const TreeShape& shape, Rank self) {
    const std::uint64_t first = position_of(shape, self) * shape.arity + 1;
    std::vector<Rank> children;
    for (std::uint64_t position = first; position < first + shape.arity && position < shape.size;
         ++position) {
        children.push_back(rank_at(shape, position));
    }
    return children;
}

}  // namespace copper
