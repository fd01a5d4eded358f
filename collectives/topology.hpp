// A k-ary tree over `size` positions, rooted anywhere: arithmetic only. The tree of another root is the same
// tree with the positions rotated, so every node can compute its place in the tree of any reader, and the
// inner nodes differ from root to root.
//
// A stream of objects from one root takes a turn of the tree for each: then the root has one child, which is
// the root of a k-ary tree of the others, and their positions shift from turn to turn. So the root sends each
// object once, every node is an inner one as often as any other, and all links carry about the same in both
// directions (what Sanders, Speck and Träff get from two trees: Parallel Computing 35(12), 2009).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace copper {

struct TreeShape {
    std::size_t size = 1;   // REQUIRES: >= 1
    std::size_t arity = 2;  // REQUIRES: >= 1
    std::size_t root = 0;   // REQUIRES: < size
    std::size_t turn = 0;   // 0: the plain tree
};

// Nothing for the root.
std::optional<std::size_t> tree_parent(const TreeShape& shape, std::size_t self);
std::vector<std::size_t> tree_children(const TreeShape& shape, std::size_t self);
// Hops from the root; 0 for the root itself.
std::size_t tree_depth(const TreeShape& shape, std::size_t self);

}  // namespace copper
