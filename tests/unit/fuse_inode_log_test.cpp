#include "fuse/inode_log.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <map>

#include "fuse/inode_table.hpp"

namespace copper {
namespace {

Attributes file(std::uint64_t version) {
    return {.inode = version,
            .size = 100 * version,
            .mode = S_IFREG | 0644,
            .links = 1,
            .changed = {.seconds = static_cast<std::int64_t>(version)}};
}
Attributes directory() {
    return {.inode = 7, .mode = S_IFDIR | 0755, .links = 2};
}

class InodeLogTest : public testing::Test {
  protected:
    InodeLogTest()
        : memory_(static_cast<std::byte*>(::mmap(nullptr, InodeLog::memory_bytes, PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
                  InodeLog::memory_bytes) {}
    ~InodeLogTest() override { ::munmap(memory_.data(), memory_.size()); }

    static std::map<NodeId, InodeLog::Inode> inodes_of(const InodeLog& log) {
        std::map<NodeId, InodeLog::Inode> inodes;
        log.for_each([&](const InodeLog::Inode& inode) { inodes.emplace(inode.node, inode); });
        return inodes;
    }

    const std::span<std::byte> memory_;
};

TEST_F(InodeLogTest, KeepsNothingWithoutMemory) {
    InodeLog log;
    EXPECT_EQ(log.add(2, 1, "a", {}, file(1)), nullptr);
    EXPECT_FALSE(log.is_whole());
    EXPECT_EQ(inodes_of(log).size(), 0U);
}

TEST_F(InodeLogTest, TellsWhatItWasTold) {
    {
        InodeLog log(memory_);
        auto* a = log.add(2, 1, "a", {.lookups = 1}, file(1));
        auto* b = log.add(3, 1, "a longer name", {.lookups = 5, .is_kept = true}, file(2));
        log.add(9, 3, "", {}, directory());
        log.change(a, {.lookups = 4, .is_named = false, .bytes_handed_out = true}, file(3));
        log.remove(b);
    }
    const InodeLog log(memory_);
    EXPECT_TRUE(log.is_whole());
    EXPECT_EQ(log.last_node(), 9U);
    const auto inodes = inodes_of(log);
    ASSERT_EQ(inodes.size(), 2U);
    const auto& a = inodes.at(2);
    EXPECT_EQ(a.name, "a");
    EXPECT_EQ(a.parent, 1U);
    EXPECT_EQ(a.attributes, file(3));
    EXPECT_EQ(a.state, (InodeLog::State{.lookups = 4, .is_named = false, .bytes_handed_out = true}));
    EXPECT_EQ(inodes.at(9).name, "");
}

TEST_F(InodeLogTest, IsRewrittenWhenMostOfItIsGone) {
    InodeLog log(memory_);
    std::map<NodeId, InodeLog::Record*> records;
    const std::string name(200, 'x');
    NodeId node = 1;
    while (!log.should_be_rewritten()) {
        ASSERT_LT(node, 1'000'000U);
        ++node;
        records[node] = log.add(node, 1, name + std::to_string(node), {.lookups = node}, file(node));
        if (node % 10 != 0) {
            log.remove(records[node]);
            records.erase(node);
        }
    }
    log.rewrite([&](NodeId moved, InodeLog::Record* record) { records.at(moved) = record; });
    EXPECT_FALSE(log.should_be_rewritten());
    const auto inodes = inodes_of(InodeLog(memory_));
    ASSERT_EQ(inodes.size(), records.size());
    for (const auto& [id, inode] : inodes) {
        ASSERT_EQ(inode.record, records.at(id));
        ASSERT_EQ(inode.name, name + std::to_string(id));
        ASSERT_EQ(inode.state.lookups, id);
    }
    EXPECT_EQ(log.last_node(), node);
}

TEST_F(InodeLogTest, ATableIsTheSameInTheNextProcess) {
    NodeId d = 0, f = 0, old = 0, gone = 0;
    {
        InodeTable table(directory(), InodeLog(memory_));
        d = table.look_up(root_node, "d", directory())->node;
        f = table.look_up(d, "f", file(1))->node;
        table.look_up(d, "f", file(1));
        table.hand_out(f, file(1), InodeTable::Bytes::some);
        old = table.look_up(d, "changed", file(2))->node;
        table.hand_out(old, file(2), InodeTable::Bytes::some);
        table.supersede(old, file(3));
        gone = table.look_up(d, "gone", file(4))->node;
        table.forget(gone, 1);
        EXPECT_TRUE(table.is_lasting());
    }
    InodeTable table(directory(), InodeLog(memory_));
    EXPECT_EQ(table.path(f), "/d/f");
    EXPECT_EQ(table.attributes(f), file(1));
    EXPECT_EQ(table.hand_out(f, file(9), InodeTable::Bytes::some), InodeTable::Verdict::other);
    EXPECT_FALSE(table.path(gone));
    // Who has the old file open keeps it, the name means the new one.
    EXPECT_EQ(table.attributes(old), file(2));
    const auto successor = table.look_up(d, "changed", file(2));
    EXPECT_NE(successor->node, old);
    EXPECT_EQ(successor->attributes, file(3));
    // Counts are kept: the kernel forgets what it has looked up, and no more is left.
    EXPECT_EQ(table.forget(f, 1), InodeTable::Known::still);
    EXPECT_EQ(table.forget(f, 1), InodeTable::Known::no_more);
    table.forget(old, 1);
    // No number is given twice.
    EXPECT_GT(table.look_up(d, "new", file(5))->node, gone);
}

TEST_F(InodeLogTest, ARefreshIsRemembered) {
    NodeId f = 0;
    {
        InodeTable table(directory(), InodeLog(memory_));
        f = table.look_up(root_node, "f", file(1))->node;
        table.hand_out(f, file(1), InodeTable::Bytes::some);
        table.drop(table.within(root_node));
    }
    InodeTable table(directory(), InodeLog(memory_));
    EXPECT_EQ(table.attributes(f), std::nullopt);
    Attributes newer = file(1);
    newer.changed.seconds += 1;
    EXPECT_EQ(table.hand_out(f, newer, InodeTable::Bytes::some), InodeTable::Verdict::adopted);
}

}  // namespace
}  // namespace copper
