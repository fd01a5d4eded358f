#include "fuse/inode_records.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <string>

#include "fuse/inode_table.hpp"
#include "fuse/lasting_memory.hpp"

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
InodeRecords::Record record(InodeId inode, const Attributes& attributes) {
    return {.inode = inode,
            .parent = root_inode,
            .lookups = inode,
            .children = 0,
            .state = InodeState::listed,
            .name_bytes = 0,
            .numbers = NumberSpace::unchanged(),
            .attributes = attributes};
}

class InodeRecordsTest : public testing::Test {
  protected:
    static std::map<InodeId, const InodeRecords::Record*> all_of(const InodeRecords& records) {
        std::map<InodeId, const InodeRecords::Record*> found;
        records.for_each([&](InodeRecords::Position position) {
            const auto& one = records.at(position);
            EXPECT_TRUE(found.emplace(one.inode, &one).second);
        });
        return found;
    }

    const LastingMemory memory = LastingMemory::make().value();
};

TEST_F(InodeRecordsTest, TellWhatTheyWereTold) {
    {
        InodeRecords records(memory.inodes());
        const auto a = records.add(record(2, file(1)), "a");
        const auto b = records.add(record(3, file(2)), "a longer name");
        records.add(record(9, directory()), "");
        InodeRecords::set_state(records.at(a), InodeState::kept_and_read);
        InodeRecords::set_lookups(records.at(a), 4);
        records.remove(b);
    }
    const InodeRecords records(memory.inodes());
    EXPECT_EQ(records.last_inode(), 9U);
    const auto found = all_of(records);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found.at(2)->name(), "a");
    EXPECT_EQ(found.at(2)->parent, root_inode);
    EXPECT_EQ(found.at(2)->attributes, file(1));
    EXPECT_EQ(found.at(2)->lookups, 4U);
    EXPECT_EQ(found.at(2)->state, InodeState::kept_and_read);
    EXPECT_EQ(found.at(9)->name(), "");
}

TEST_F(InodeRecordsTest, AreRewrittenWhenMostOfThemAreGone) {
    InodeRecords records(memory.inodes());
    const std::string name(200, 'x');
    InodeId inode = 1;
    std::size_t left = 0;
    while (!records.should_be_rewritten()) {
        ASSERT_LT(inode, 1'000'000U);
        ++inode;
        const auto position = records.add(record(inode, file(inode)), name + std::to_string(inode));
        if (inode % 10 != 0) {
            records.remove(position);
        } else {
            ++left;
        }
    }
    records.rewrite();
    EXPECT_FALSE(records.should_be_rewritten());
    const auto found = all_of(InodeRecords(memory.inodes()));
    ASSERT_EQ(found.size(), left);
    for (const auto& [id, inode] : found) {
        ASSERT_EQ(id % 10, 0U);
        ASSERT_EQ(inode->name(), name + std::to_string(id));
        ASSERT_EQ(inode->lookups, id);
        ASSERT_EQ(inode->attributes, file(id));
    }
    EXPECT_EQ(records.last_inode(), inode);
}

TEST_F(InodeRecordsTest, ATableIsTheSameInTheNextProcess) {
    InodeId d = 0, f = 0, old = 0, gone = 0;
    {
        InodeTable table(directory(), memory.inodes());
        d = table.look_up(root_inode, "d", directory())->inode;
        f = table.look_up(d, "f", file(1))->inode;
        table.look_up(d, "f", file(1));
        table.hand_out(f, file(1), InodeTable::Bytes::some);
        old = table.look_up(d, "changed", file(2))->inode;
        table.hand_out(old, file(2), InodeTable::Bytes::some);
        table.supersede(old, file(3));
        gone = table.look_up(d, "gone", file(4))->inode;
        table.forget(gone, 1);
    }
    InodeTable table(directory(), memory.inodes());
    EXPECT_EQ(table.path(root_inode), "/");
    EXPECT_EQ(table.path(f), "/d/f");
    EXPECT_EQ(table.attributes(f), file(1));
    Attributes newer = file(1);
    newer.changed.seconds += 1;
    EXPECT_EQ(table.hand_out(f, newer, InodeTable::Bytes::some), InodeTable::Verdict::other);
    EXPECT_FALSE(table.path(gone));
    // Who has the old file open keeps it, the name means the new one.
    EXPECT_EQ(table.attributes(old), file(2));
    const auto successor = table.look_up(d, "changed", file(2));
    EXPECT_NE(successor->inode, old);
    EXPECT_EQ(successor->attributes, file(3));
    // Counts are kept: the kernel forgets what it has looked up, and no more is left.
    EXPECT_EQ(table.forget(f, 1), InodeTable::Known::still);
    EXPECT_EQ(table.forget(f, 1), InodeTable::Known::no_more);
    table.forget(old, 1);
    EXPECT_EQ(table.forget(d, 1), InodeTable::Known::still) << "there is an inode below it";
    EXPECT_EQ(table.path(successor->inode), "/d/changed");
    // No number is given twice.
    EXPECT_GT(table.look_up(d, "new", file(5))->inode, gone);
}

// A process that was killed when it had written an inode's new record, and not removed the old one.
TEST_F(InodeRecordsTest, TheLaterOneOfTwoIsRight) {
    Attributes newer = file(1);
    newer.changed.seconds += 1;
    InodeId inode = 0;
    {
        InodeTable table(directory(), memory.inodes());
        inode = table.look_up(root_inode, "f", file(1))->inode;
        InodeRecords records(memory.inodes());
        records.add(record(inode, newer), "f");
    }
    InodeTable table(directory(), memory.inodes());
    EXPECT_EQ(table.size(), 2U);
    EXPECT_EQ(table.attributes(inode), newer);
    EXPECT_EQ(table.look_up(root_inode, "f", newer)->inode, inode);
}

TEST_F(InodeRecordsTest, ATableIsTheSameAfterTheyMoved) {
    InodeTable table(directory(), memory.inodes());
    constexpr int files = 200'000;
    std::vector<InodeId> inodes;
    for (int i = 0; i < files; ++i) {
        inodes.push_back(table.look_up(root_inode, std::to_string(i), file(1))->inode);
    }
    for (int i = 0; i < files; ++i) {
        if (i % 10 != 0) {
            ASSERT_EQ(table.forget(inodes[static_cast<std::size_t>(i)], 1), InodeTable::Known::no_more);
        }
    }
    EXPECT_EQ(table.size(), 1U + files / 10);
    for (int i = 0; i < files; i += 10) {
        const InodeId inode = inodes[static_cast<std::size_t>(i)];
        ASSERT_EQ(table.path(inode), "/" + std::to_string(i));
        ASSERT_EQ(table.look_up(root_inode, std::to_string(i), file(1))->inode, inode);
    }
}

}  // namespace
}  // namespace copper
