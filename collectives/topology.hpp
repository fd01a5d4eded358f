// The fixed trees over which interests go up and objects come down: arithmetic only.
//
// All trees are the same complete k-ary tree, filled level by level with the ranks in rising order; each
// begins at another rank, and these first ranks are spread evenly. The inner nodes of one tree are the first
// 1/k of its ranks, so a rank is an inner node in 1/k of the trees and a leaf in the others: a stream of
// objects that takes the trees in turn is forwarded by all nodes alike (what Sanders, Speck and Träff get
// from two trees: Parallel Computing 35(12), 2009; NCCL's double trees do the same). There are few trees, so
// a node talks to few others in its life.
//
// A tree never changes. What happens when a node dies is Membership's part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/rank.hpp"
#include "wire/message.hpp"

namespace copper {

struct TreeShape {
    std::uint32_t size = 1;   // REQUIRES: >= 1
    std::size_t arity = 2;    // REQUIRES: >= 1
    std::uint32_t first = 0;  // the rank at the root. REQUIRES: < size
};

// The rank at the root of each of the tree_count() trees.
std::uint32_t tree_root(std::uint32_t size, std::uint32_t tree);

// Nothing for the root.
std::optional<Rank> tree_parent(const TreeShape& shape, Rank self);
std::vector<Rank> tree_children(const TreeShape& shape, Rank self);

}  // namespace copper
