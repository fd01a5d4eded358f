#include "collectives/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace copper {
namespace {

// The depth of a tree in which every level but the last is full: none is flatter.
std::size_t least_depth(std::size_t size, std::size_t arity) {
    std::size_t depth = 0;
    std::size_t level = 1;
    for (std::size_t reached = 1; reached < size; reached += level) {
        level *= arity;
        ++depth;
    }
    return depth;
}

// What is wrong with the tree; empty if nothing is. (Millions of nodes are checked: too many for EXPECT_*.)
// Counts the inner nodes in `times_inner`.
std::string defect_of(const TreeShape& shape, std::vector<std::uint32_t>& times_inner) {
    constexpr std::size_t unreached = ~std::size_t{0};
    const auto name = [](Rank rank) { return "node " + std::to_string(rank.value); };
    std::vector<std::size_t> depth(shape.size, unreached);
    std::vector<Rank> order = {Rank{shape.first}};
    order.reserve(shape.size);
    depth[shape.first] = 0;
    if (tree_parent(shape, Rank{shape.first})) {
        return "the root has a parent";
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
        const Rank node = order[next];
        const std::vector<Rank> children = tree_children(shape, node);
        times_inner[node.value] += children.empty() ? 0 : 1;
        if (children.size() > shape.arity) {
            return name(node) + " has too many children";
        }
        for (const Rank child : children) {
            if (child.value >= shape.size) {
                return "a child that does not exist";
            }
            if (depth[child.value] != unreached) {
                return name(child) + " has two parents, or stands on a cycle";
            }
            if (tree_parent(shape, child) != node) {
                return name(child) + " has another parent than " + name(node);
            }
            depth[child.value] = depth[node.value] + 1;
            order.push_back(child);
        }
    }
    if (order.size() != shape.size) {
        return std::to_string(shape.size - order.size()) + " nodes are not reached";
    }
    if (depth[order.back().value] != least_depth(shape.size, shape.arity)) {
        return "the tree is " + std::to_string(depth[order.back().value]) + " deep";
    }
    return "";
}

class Topology : public testing::TestWithParam<std::size_t> {
  protected:
    // The inner nodes of a tree of `size` nodes: all but the last ones have as many children as they may.
    std::size_t inner_nodes(std::size_t size) const { return (size - 1 + GetParam() - 1) / GetParam(); }
};

// Each rank is an inner node in as many of the trees as any other, give or take one.
TEST_P(Topology, EveryTreeOfEverySizeUpTo2000IsATreeAndTheySpreadTheForwarding) {
    for (std::uint32_t size = 1; size <= 2000; ++size) {
        const std::uint32_t trees = tree_count(size);
        std::vector<std::uint32_t> times_inner(size, 0);
        for (std::uint32_t tree = 0; tree < trees; ++tree) {
            const std::string defect =
                defect_of({.size = size, .arity = GetParam(), .first = tree_root(size, tree)}, times_inner);
            ASSERT_EQ(defect, "") << "size " << size << ", tree " << tree;
        }
        const std::size_t all = inner_nodes(size) * trees;
        const auto [least, most] = std::minmax_element(times_inner.begin(), times_inner.end());
        ASSERT_EQ(std::accumulate(times_inner.begin(), times_inner.end(), std::size_t{0}), all);
        ASSERT_GE(*least, all / size) << "size " << size;
        ASSERT_LE(*most, (all + size - 1) / size) << "size " << size;
    }
}

INSTANTIATE_TEST_SUITE_P(Arities, Topology, testing::Values(1, 2, 4, 16),
                         [](const auto& arity) { return "Arity" + std::to_string(arity.param); });

TEST(Roots, AreDistinctAndSpreadEvenly) {
    for (std::uint32_t size = 1; size <= 2000; ++size) {
        const std::uint32_t trees = tree_count(size);
        ASSERT_EQ(trees, std::min(size, trees_max));
        for (std::uint32_t tree = 0; tree < trees; ++tree) {
            const std::uint32_t next = tree + 1 < trees ? tree_root(size, tree + 1) : size;
            const std::uint32_t gap = next - tree_root(size, tree);
            ASSERT_GE(gap, size / trees) << "size " << size << ", tree " << tree;
            ASSERT_LE(gap, (size + trees - 1) / trees) << "size " << size << ", tree " << tree;
        }
        ASSERT_EQ(tree_root(size, 0), 0U);
    }
}

// Products of ranks and trees fit.
TEST(Roots, AreRightInTheLargestJob) {
    constexpr std::uint32_t size = ~std::uint32_t{0};
    EXPECT_EQ(tree_root(size, trees_max - 1), std::uint64_t{size} * (trees_max - 1) / trees_max);
    const TreeShape shape{.size = size, .arity = 4, .first = tree_root(size, trees_max - 1)};
    for (const std::uint32_t rank : {0U, 1U, size / 2, shape.first - 1, shape.first + 1, size - 1}) {
        const auto parent = tree_parent(shape, Rank{rank});
        ASSERT_TRUE(parent) << rank;
        const auto siblings = tree_children(shape, *parent);
        EXPECT_EQ(std::count(siblings.begin(), siblings.end(), Rank{rank}), 1) << rank;
    }
}

}  // namespace
}  // namespace copper
