#include "collectives/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
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
std::string defect_of(const TreeShape& shape) {
    constexpr std::size_t unreached = ~std::size_t{0};
    std::vector<std::size_t> depth(shape.size, unreached);
    std::vector<std::size_t> order = {shape.root};
    order.reserve(shape.size);
    depth[shape.root] = 0;
    if (tree_parent(shape, shape.root)) {
        return "the root has a parent";
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
        const std::size_t node = order[next];
        const std::vector<std::size_t> children = tree_children(shape, node);
        if (children.size() > shape.arity) {
            return "node " + std::to_string(node) + " has too many children";
        }
        for (const std::size_t child : children) {
            if (child >= shape.size) {
                return "a child that does not exist";
            }
            if (depth[child] != unreached) {
                return "node " + std::to_string(child) + " has two parents, or stands on a cycle";
            }
            if (tree_parent(shape, child) != node) {
                return "node " + std::to_string(child) + " has another parent than node " +
                       std::to_string(node);
            }
            depth[child] = depth[node] + 1;
            order.push_back(child);
        }
    }
    if (order.size() != shape.size) {
        return std::to_string(shape.size - order.size()) + " nodes are not reached";
    }
    const std::size_t least = shape.turn == 0 || shape.size == 1
                                  ? least_depth(shape.size, shape.arity)
                                  : 1 + least_depth(shape.size - 1, shape.arity);
    if (depth[order.back()] != least) {
        return "the tree is " + std::to_string(depth[order.back()]) + " deep";
    }
    // Walking up takes as many steps as the tree is deep: in a chain, not from every node.
    const std::size_t stride = shape.arity == 1 ? std::max<std::size_t>(1, shape.size / 8) : 1;
    for (std::size_t node = 0; node < shape.size; node += stride) {
        if (tree_depth(shape, node) != depth[node]) {
            return "node " + std::to_string(node) + " believes in another depth";
        }
    }
    return "";
}

class Topology : public testing::TestWithParam<std::size_t> {};

TEST_P(Topology, EverySizeUpTo2000IsATree) {
    constexpr std::size_t every_root_up_to = 64;
    for (std::size_t size = 1; size <= 2000; ++size) {
        std::set<std::size_t> roots = {0, size / 3, size - 1};
        for (std::size_t root = 0; size <= every_root_up_to && root < size; ++root) {
            roots.insert(root);
        }
        for (const std::size_t root : roots) {
            for (const std::size_t turn : {std::size_t{0}, std::size_t{1}, root + size / 2 + 2}) {
                const std::string defect =
                    defect_of({.size = size, .arity = GetParam(), .root = root, .turn = turn});
                ASSERT_EQ(defect, "") << "size " << size << ", root " << root << ", turn " << turn;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Arities, Topology, testing::Values(1, 2, 3, 4, 8, 16),
                         [](const auto& arity) { return "Arity" + std::to_string(arity.param); });

// What a node sends of a stream: the root each object once, the others about as much as they receive.
TEST_P(Topology, ATurnedTreeSpreadsTheSending) {
    for (const std::size_t size : {2U, 3U, 4U, 5U, 8U, 9U, 64U, 1000U, 1001U}) {
        const std::size_t turns = 60 * GetParam();
        std::vector<std::size_t> sent(size, 0);
        for (std::size_t turn = 1; turn <= turns; ++turn) {
            for (std::size_t node = 0; node < size; ++node) {
                sent[node] +=
                    tree_children({.size = size, .arity = GetParam(), .root = 0, .turn = turn}, node).size();
            }
        }
        EXPECT_EQ(sent[0], turns);
        EXPECT_LE(*std::max_element(sent.begin(), sent.end()), turns + 3 * turns / 10) << "of " << size;
    }
}

TEST(Topology, InnerNodesDifferFromRootToRoot) {
    std::set<std::size_t> inner;
    for (std::size_t root = 0; root < 64; ++root) {
        for (std::size_t node = 0; node < 64; ++node) {
            if (!tree_children({.size = 64, .arity = 4, .root = root}, node).empty()) {
                inner.insert(node);
            }
        }
    }
    EXPECT_EQ(inner.size(), 64U);
}

}  // namespace
}  // namespace copper
