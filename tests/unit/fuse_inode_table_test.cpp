#include "fuse/inode_table.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>
#include <thread>
#include <vector>

#include "fuse/lasting_memory.hpp"

namespace copper {
namespace {

Attributes directory() {
    return {.mode = S_IFDIR | 0755};
}

Attributes file(std::int64_t changed) {
    return {
        .inode = 7, .size = 10, .mode = S_IFREG | 0644, .changed = {.seconds = changed, .nanoseconds = 0}};
}

class InodeTableTest : public testing::Test {
  protected:
    LastingMemory memory = LastingMemory::make().value();
    InodeTable table{directory(), memory.inodes()};
};

InodeId look_up(InodeTable& table, InodeId parent, std::string_view name, const Attributes& attributes) {
    return table.look_up(parent, name, attributes).value().inode;
}

TEST_F(InodeTableTest, GivesTheSameInodeAsLongAsItIsKnown) {
    const InodeId a = look_up(table, root_inode, "a", directory());
    const InodeId b = look_up(table, a, "b", file(1));
    EXPECT_EQ(look_up(table, a, "b", file(1)), b);
    EXPECT_EQ(table.path(b), "/a/b");
    EXPECT_EQ(table.path(root_inode), "/");
    table.forget(b, 1);
    EXPECT_EQ(table.path(b), "/a/b");
    table.forget(b, 1);
    EXPECT_FALSE(table.path(b));
    EXPECT_GT(look_up(table, a, "b", file(1)), b);  // never used again
}

TEST_F(InodeTableTest, KeepsADirectoryAsLongAsItHasInodesBelow) {
    const InodeId a = look_up(table, root_inode, "a", directory());
    const InodeId b = look_up(table, a, "b", directory());
    const InodeId c = look_up(table, b, "c", file(1));
    table.forget(a, 1);
    table.forget(b, 1);
    EXPECT_EQ(table.path(c), "/a/b/c");
    EXPECT_EQ(look_up(table, root_inode, "a", directory()), a);
    table.forget(c, 1);
    EXPECT_EQ(table.size(), 2U);
    table.forget(a, 1);
    EXPECT_EQ(table.size(), 1U);
}

TEST_F(InodeTableTest, IgnoresTooManyForgetsAndTheRoots) {
    const InodeId a = look_up(table, root_inode, "a", directory());
    table.forget(a, 100);
    table.forget(a, 1);
    table.forget(root_inode, 1);
    EXPECT_EQ(table.path(root_inode), "/");
    EXPECT_EQ(table.size(), 1U);
}

TEST_F(InodeTableTest, TellsNumbersOfTwoFilesystemsApart) {
    const LastingMemory of_its_own = LastingMemory::make().value();
    InodeTable numbered(directory(), of_its_own.inodes(), "/a");
    const auto mount = [&](InodeId parent, std::string_view name) {
        return numbered.look_up(parent, name, directory(), InodeTable::Filesystem::own)->inode;
    };
    const InodeId a = mount(root_inode, "a");
    const InodeId b = mount(root_inode, "b");
    const InodeId inner = mount(a, "b");
    const auto number = [&](InodeId parent, std::string_view name) {
        return numbered.look_up(parent, name, file(1))->number;
    };
    EXPECT_EQ(number(a, "f"), file(1).inode) << "the main filesystem keeps its numbers";
    const std::set<std::uint64_t> numbers = {number(root_inode, "f"), number(a, "f"), number(b, "f"),
                                             number(inner, "f")};
    EXPECT_EQ(numbers.size(), 4U);
    EXPECT_EQ(number(b, "hard link"), number(b, "f"));
    EXPECT_EQ(numbered.numbers(b).number(file(1).inode), number(b, "f")) << "as a listing tells it";
    const auto told = numbered.look_up(b, "f", file(1));
    EXPECT_EQ(numbered.told(told->inode)->number, told->number);
    EXPECT_EQ(numbered.attributes(told->inode), file(1)) << "versions compare the backing number";
    numbered.hand_out(told->inode, file(1), InodeTable::Bytes::some);
    numbered.supersede(told->inode, file(2));
    EXPECT_EQ(number(b, "f"), told->number) << "a changed file stays on its filesystem";
}

TEST_F(InodeTableTest, TellsNumbersApartWhenItsRecordsMove) {
    const InodeId b = table.look_up(root_inode, "b", directory(), InodeTable::Filesystem::own).value().inode;
    const std::uint64_t number = table.look_up(b, "f", file(1))->number;
    for (std::int64_t i = 0; i < 150000; ++i) {  // leaves so many removed records
        Attributes accessed = file(1);
        accessed.accessed.seconds = i;
        table.look_up(b, "g", accessed);
    }
    Attributes longer = file(2);
    longer.size = 11;
    EXPECT_EQ(table.look_up(b, "f", longer)->number, number);
    EXPECT_EQ(table.path(b), "/b");
}

TEST(NumberSpaceTest, NoNumberIsZero) {
    const NumberSpace numbers = NumberSpace::of("/b");
    const std::uint64_t mask = numbers.number(0);
    EXPECT_NE(mask, 0U);
    EXPECT_LT(mask, std::uint64_t{1} << 53);
    EXPECT_EQ(numbers.number(mask), mask);
    EXPECT_EQ(numbers.number(mask + 1), (mask + 1) ^ mask);
    EXPECT_EQ(NumberSpace::unchanged().number(7), 7U);
}

TEST_F(InodeTableTest, RefusesANameInAnUnknownDirectory) {
    EXPECT_FALSE(table.look_up(99, "a", directory()));
}

TEST_F(InodeTableTest, TakesWhateverVersionComesFirst) {
    const InodeId inode = look_up(table, root_inode, "f", file(1));
    EXPECT_EQ(table.hand_out(inode, file(2), InodeTable::Bytes::some), InodeTable::Verdict::adopted);
    EXPECT_EQ(table.attributes(inode), file(2));
    EXPECT_EQ(table.hand_out(inode, file(2), InodeTable::Bytes::some), InodeTable::Verdict::current);
    EXPECT_EQ(table.hand_out(inode, file(1), InodeTable::Bytes::some), InodeTable::Verdict::other);
    EXPECT_EQ(table.hand_out(inode, file(3), InodeTable::Bytes::none), InodeTable::Verdict::other);
}

TEST_F(InodeTableTest, TellsTheBytesAttributesRatherThanAnOlderListings) {
    const InodeId inode = look_up(table, root_inode, "f", file(1));
    table.hand_out(inode, file(2), InodeTable::Bytes::some);
    const auto told = table.look_up(root_inode, "f", file(1));
    EXPECT_EQ(told->inode, inode);
    EXPECT_EQ(told->attributes, file(2));
}

TEST_F(InodeTableTest, GivesANewInodeToANewerVersionAndToAnotherType) {
    const InodeId old = look_up(table, root_inode, "f", file(1));
    table.hand_out(old, file(1), InodeTable::Bytes::some);
    const InodeId newer = look_up(table, root_inode, "f", file(2));
    EXPECT_NE(newer, old);
    EXPECT_EQ(table.path(old), "/f");
    EXPECT_EQ(look_up(table, root_inode, "f", file(2)), newer);
    const InodeId other = look_up(table, root_inode, "f", directory());
    EXPECT_NE(other, newer);
    table.forget(old, 1);
    EXPECT_EQ(look_up(table, root_inode, "f", directory()), other);
}

TEST_F(InodeTableTest, NeverChangesTheSizeOfANode) {
    Attributes longer = file(2);
    longer.size += 1;
    const InodeId inode = look_up(table, root_inode, "f", file(1));
    EXPECT_EQ(table.hand_out(inode, longer, InodeTable::Bytes::some), InodeTable::Verdict::other);
    EXPECT_EQ(table.attributes(inode), file(1));
    EXPECT_EQ(table.look_up(root_inode, "f", file(2))->inode, inode);
    EXPECT_EQ(table.attributes(inode), file(2));
    const auto told = table.look_up(root_inode, "f", longer);
    EXPECT_NE(told->inode, inode);
    EXPECT_EQ(told->attributes, longer);
    EXPECT_EQ(table.attributes(inode), file(2));
    EXPECT_NE(look_up(table, root_inode, "f", file(1)), told->inode) << "there are no bytes that know better";
    // The kernel does not look at a directory's size.
    Attributes grown = directory();
    grown.size = 4096;
    EXPECT_EQ(look_up(table, root_inode, "d", directory()), look_up(table, root_inode, "d", grown));
}

TEST_F(InodeTableTest, KeepsWhatSupersedesAnInode) {
    const InodeId d = look_up(table, root_inode, "d", directory());
    const InodeId old = look_up(table, d, "f", file(1));
    table.hand_out(old, file(1), InodeTable::Bytes::some);
    const auto place = table.supersede(old, file(2));
    ASSERT_TRUE(place);
    EXPECT_EQ(place->parent, d);
    EXPECT_EQ(place->name, "f");
    EXPECT_TRUE(table.supersede(old, file(2))) << "the kernel may not have been told yet";
    EXPECT_EQ(table.attributes(old), file(1));
    const auto told = table.look_up(d, "f", file(1));
    EXPECT_NE(told->inode, old);
    EXPECT_EQ(told->attributes, file(2));
    table.forget(told->inode, 1);
    EXPECT_EQ(look_up(table, d, "f", file(1)), told->inode);
    table.forget(told->inode, 1);
    // The same again, and then a Listing that is newer still.
    EXPECT_TRUE(table.supersede(told->inode, file(3)));
    EXPECT_FALSE(table.path(told->inode));
    EXPECT_EQ(table.look_up(d, "f", file(1))->attributes, file(3));
    EXPECT_EQ(table.look_up(d, "f", file(4))->attributes, file(4));
}

// As when a directory is exchanged for an older one: its files have other bytes, and older time stamps.
TEST_F(InodeTableTest, KeepsWhatIsOlderThanTheListing) {
    Attributes older = file(1);
    older.size += 1;
    const InodeId listed = look_up(table, root_inode, "f", file(2));
    ASSERT_TRUE(table.supersede(listed, older));
    const auto told = table.look_up(root_inode, "f", file(2));
    EXPECT_EQ(told->attributes, older) << "the Listing is known to be outdated";
    EXPECT_EQ(table.hand_out(told->inode, older, InodeTable::Bytes::some), InodeTable::Verdict::current);
    EXPECT_EQ(look_up(table, root_inode, "f", file(2)), told->inode);
    EXPECT_EQ(table.look_up(root_inode, "f", file(3))->attributes, file(3)) << "another Listing";

    Attributes same_size = file(1);
    const InodeId adopted = look_up(table, root_inode, "g", file(2));
    EXPECT_EQ(table.hand_out(adopted, same_size, InodeTable::Bytes::some), InodeTable::Verdict::adopted);
    EXPECT_EQ(look_up(table, root_inode, "g", file(2)), adopted);
}

TEST_F(InodeTableTest, SupersedesWhatAFileWasInTheMiddleOfAChange) {
    const InodeId old = look_up(table, root_inode, "f", file(1));
    Attributes half = file(2);
    half.size += 1;
    ASSERT_TRUE(table.supersede(old, half));
    ASSERT_TRUE(table.supersede(old, file(2))) << "the same time stamps, and then another size";
    const auto told = table.look_up(root_inode, "f", file(1));
    EXPECT_EQ(told->attributes, file(2));
    ASSERT_TRUE(table.supersede(old, file(1)));
    EXPECT_EQ(look_up(table, root_inode, "f", file(1)), told->inode) << "older";
    table.detach(told->inode);
    ASSERT_TRUE(table.supersede(old, file(3)));
    EXPECT_EQ(table.look_up(root_inode, "f", file(1))->attributes, file(3));
}

TEST_F(InodeTableTest, ADetachedInodeLivesOnWithoutItsName) {
    const InodeId old = look_up(table, root_inode, "f", file(1));
    table.detach(old);
    table.detach(root_inode);
    const InodeId now = look_up(table, root_inode, "f", file(1));
    EXPECT_NE(now, old);
    EXPECT_EQ(table.path(old), "/f");
    EXPECT_EQ(table.forget(old, 1), InodeTable::Known::no_more);
    EXPECT_EQ(look_up(table, root_inode, "f", file(1)), now);
}

std::set<std::string> paths_of(InodeTable& table, const InodeTable::Below& below) {
    std::set<std::string> paths;
    for (const auto& [parent, name] : below.names) {
        paths.insert((parent == root_inode ? "" : table.path(parent).value()) + "/" + name);
    }
    EXPECT_EQ(paths.size(), below.names.size());
    return paths;
}

// Of one filesystem.
InodeTable::Below doubt(InodeTable& table, const std::string& path, Reach reach = Reach::everything_below) {
    const auto below = table.doubt(path, reach);
    EXPECT_EQ(below.size(), 1U);
    return below.begin()->second;
}

TEST_F(InodeTableTest, FindsAllBelowAPath) {
    const InodeId a = look_up(table, root_inode, "a", directory());
    const InodeId b = look_up(table, a, "b", directory());
    const InodeId c = look_up(table, b, "c", directory());
    look_up(table, c, "f", file(1));
    look_up(table, a, "f", file(1));
    look_up(table, root_inode, "ab", directory());
    using Paths = std::set<std::string>;
    using Inodes = std::set<InodeId>;
    const auto inodes = [](const InodeTable::Below& below) {
        return Inodes(below.directories.begin(), below.directories.end());
    };
    const auto of_b = doubt(table, "/a/b");
    EXPECT_EQ(paths_of(table, of_b), (Paths{"/a/b", "/a/b/c", "/a/b/c/f"}));
    EXPECT_EQ(of_b.names.back().name, "b");
    EXPECT_EQ(inodes(of_b), (Inodes{a, b, c}));
    EXPECT_EQ(paths_of(table, doubt(table, "/a/b/c/f")), Paths{"/a/b/c/f"});
    // The kernel may know that there is no such file.
    EXPECT_EQ(paths_of(table, doubt(table, "/a/absent")), Paths{"/a/absent"});
    EXPECT_EQ(inodes(doubt(table, "/a/absent")), Inodes{a});
    EXPECT_EQ(paths_of(table, doubt(table, "/absent/b")), Paths{"/absent"});
    EXPECT_EQ(paths_of(table, doubt(table, "/")), (Paths{"/a", "/a/b", "/a/b/c", "/a/b/c/f", "/a/f", "/ab"}));
    const auto of_one_level = doubt(table, "/a", Reach::one_level);
    EXPECT_EQ(paths_of(table, of_one_level), (Paths{"/a", "/a/b", "/a/f"}));
    EXPECT_EQ(inodes(of_one_level), (Inodes{root_inode, a}));
    EXPECT_EQ(paths_of(table, doubt(table, "/a/f", Reach::one_level)), Paths{"/a/f"});
    EXPECT_EQ(paths_of(table, doubt(table, "/", Reach::one_level)), (Paths{"/a", "/ab"}));
}

TEST_F(InodeTableTest, FindsAllBelowAPathByFilesystem) {
    const InodeId a = look_up(table, root_inode, "a", directory());
    const InodeId b = table.look_up(a, "b", directory(), InodeTable::Filesystem::own)->inode;
    look_up(table, b, "f", file(1));
    using Paths = std::set<std::string>;
    const NumberSpace of_root = table.numbers(root_inode);
    const NumberSpace of_b = table.numbers(b);
    const auto all = table.doubt("/");
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(paths_of(table, all.at(of_root)), (Paths{"/a", "/a/b"}));
    EXPECT_EQ(all.at(of_root).directories.size(), 2U);
    EXPECT_EQ(paths_of(table, all.at(of_b)), Paths{"/a/b/f"});
    EXPECT_EQ(all.at(of_b).directories, std::vector{b});
    // The name of its root lies in a directory of the other one.
    const auto below_b = table.doubt("/a/b");
    EXPECT_EQ(paths_of(table, below_b.at(of_root)), Paths{"/a/b"});
    EXPECT_EQ(paths_of(table, below_b.at(of_b)), Paths{"/a/b/f"});
    const auto only_b = table.doubt("/", Reach::everything_below, of_b);
    ASSERT_EQ(only_b.size(), 1U);
    EXPECT_EQ(paths_of(table, only_b.at(of_b)), Paths{"/a/b/f"});
}

TEST_F(InodeTableTest, ADoubtedInodeKeepsItsNameForItsVersionAlone) {
    const InodeId f = look_up(table, root_inode, "f", file(2));
    table.hand_out(f, file(2), InodeTable::Bytes::some);
    EXPECT_EQ(look_up(table, root_inode, "f", file(1)), f) << "an older Listing";
    table.doubt("/");
    EXPECT_EQ(look_up(table, root_inode, "f", file(2)), f);
    EXPECT_EQ(look_up(table, root_inode, "f", file(1)), f) << "no doubt any more";
    table.doubt("/f");
    const InodeId other = look_up(table, root_inode, "f", file(1));
    EXPECT_NE(other, f) << "an older file took its place";
    EXPECT_EQ(table.attributes(f), file(2));
    EXPECT_EQ(table.attributes(other), file(1));
}

TEST_F(InodeTableTest, AnAnswerOfBeforeEndsNoDoubt) {
    const InodeId f = look_up(table, root_inode, "f", file(1));
    const auto before = table.doubts();
    table.doubt("/");
    const auto late = [&](std::string_view name) {
        return table.look_up(root_inode, name, file(1), InodeTable::Filesystem::of_parent, before)->inode;
    };
    EXPECT_EQ(late("f"), f);
    const InodeId g = late("g");
    EXPECT_NE(look_up(table, root_inode, "f", file(2)), f);
    EXPECT_NE(look_up(table, root_inode, "g", file(2)), g);
}

// The kernel keeps the target of a link.
TEST_F(InodeTableTest, ADoubtedLinkOfTheSameLengthIsAnotherInode) {
    Attributes link = file(1);
    link.mode = S_IFLNK | 0777;
    const InodeId first = look_up(table, root_inode, "l", link);
    link.changed.seconds = 2;
    EXPECT_EQ(look_up(table, root_inode, "l", link), first);
    table.doubt("/");
    link.changed.seconds = 3;
    EXPECT_NE(look_up(table, root_inode, "l", link), first);
}

TEST_F(InodeTableTest, ADoubtedDirectoryStays) {
    const InodeId d = look_up(table, root_inode, "d", directory());
    table.doubt("/");
    Attributes changed = directory();
    changed.changed.seconds = 5;
    EXPECT_EQ(look_up(table, root_inode, "d", changed), d);
    EXPECT_EQ(table.attributes(d), changed);
}

TEST_F(InodeTableTest, CountsLookupsOfManyThreads) {
    constexpr int rounds = 2000;
    const auto churn = [this] {
        for (int i = 0; i < rounds; ++i) {
            const InodeId a = look_up(table, root_inode, "a", directory());
            const InodeId f = look_up(table, a, std::to_string(i % 7), file(1));
            EXPECT_TRUE(table.path(f));
            table.hand_out(f, file(1), InodeTable::Bytes::some);
            table.forget(f, 1);
            table.forget(a, 1);
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back(churn);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(table.size(), 1U);
}

}  // namespace
}  // namespace copper
