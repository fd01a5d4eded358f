#include "fuse/operations.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "base/path.hpp"
#include "cache/codec.hpp"
#include "fuse/lasting_memory.hpp"
#include "tests/support/directory_object.hpp"
#include "tests/support/drop.hpp"

namespace copper {
namespace {

// What a handler said to the kernel.
struct Answer {
    int replies = 0;
    int error = 0;
    InodeId inode = 0;
    KernelCaching caching = KernelCaching::forever;
    struct stat st {};
    std::string text;  // bytes or a link's target
    std::size_t pieces = 0;
    std::size_t size = 0;
    BackingId backing = 0;
};

class FakeReply final : public Reply {
  public:
    FakeReply(Answer& answer, Sent sent) : answer_(answer), sent_(sent) {}

    void error(int error_number) override { once().error = error_number; }
    Sent entry(InodeId inode, const struct stat& attributes, KernelCaching caching) override {
        once().inode = inode;
        answer_.st = attributes;
        answer_.caching = caching;
        return sent_;
    }
    void attributes(const struct stat& attributes) override { once().st = attributes; }
    void link(const std::string& target) override { once().text = target; }
    Sent opened(BackingId backing) override {
        once().backing = backing;
        return sent_;
    }
    Sent bytes(std::span<const iovec> pieces) override {
        once().pieces = pieces.size();
        for (const auto& piece : pieces) {
            answer_.text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
        }
        return sent_;
    }
    void size(std::size_t bytes) override { once().size = bytes; }
    void position(std::uint64_t offset) override { once().size = offset; }
    void statistics(const struct statvfs& statistics) override { once().size = statistics.f_namemax; }

  private:
    Answer& once() {
        ++answer_.replies;
        return answer_;
    }
    Answer& answer_;
    const Sent sent_;
};

Attributes attributes_of(std::uint32_t mode, std::uint64_t inode, std::uint64_t size = 0) {
    return {.inode = inode,
            .size = size,
            .blocks = (size + 511) / 512,
            .mode = mode,
            .links = 1,
            .changed = {.seconds = 1, .nanoseconds = 5}};
}

std::string text_of(std::size_t bytes, char first) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) {
        text[i] = static_cast<char>(first + static_cast<char>(i % 23));
    }
    return text;
}

// A backing filesystem in a map, and the handlers over it. Objects in `held` come when the test says so.
class FuseOperations : public testing::Test {
  protected:
    explicit FuseOperations(Audience whom = Audience::launching_user, bool with_selinux = true)
        : audience(whom), has_selinux(with_selinux) {
        put_directory("/", {{"t", "", attributes_of(S_IFDIR | 0755, 2)},
                            {"etc", "", attributes_of(S_IFDIR | 0755, 3)}});
        put_directory("/t", tree_entries());
        put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 10, 5), "hello");
        put_extent("/t/big", 0, attributes_of(S_IFREG | 0644, 11, extent_bytes + 100),
                   text_of(extent_bytes, 'a'));
        put_extent("/t/big", 1, attributes_of(S_IFREG | 0644, 11, extent_bytes + 100), text_of(100, 'A'));
        objects[{.kind = ObjectKind::xattrs, .path = "/t/file"}] =
            make_object(Xattrs{{"user.a", "value"}, {"user.b", ""}});
    }

    static std::vector<Listing::NewEntry> tree_entries() {
        return {{"file", "", attributes_of(S_IFREG | 0644, 10, 5)},
                {"big", "", attributes_of(S_IFREG | 0644, 11, extent_bytes + 100)},
                {"in", "/t/file", attributes_of(S_IFLNK | 0777, 12, 7), true},
                {"out", "/etc/x", attributes_of(S_IFLNK | 0777, 13, 6)},
                {"near", "file", attributes_of(S_IFLNK | 0777, 14, 4)}};
    }
    // Its names, and the attributes of its entries: alone and in a batch.
    void put_directory(const std::string& path, const std::vector<Listing::NewEntry>& entries,
                       std::chrono::microseconds operation_time = test::at_once) {
        objects[{.kind = ObjectKind::directory, .path = path}] =
            make_object(test::directory_of(entries, 1, operation_time));
        objects[{.kind = ObjectKind::batch, .path = path}] =
            make_object(Listing(entries, Listing::Detail::attributes));
        for (const auto& entry : entries) {
            objects[{.kind = ObjectKind::entry, .path = join_path(path, entry.name)}] =
                make_object(Listing({entry}, Listing::Detail::attributes));
        }
    }
    // It is so for the moment.
    void give_lifetime(const ObjectKey& key) {
        objects.at(key) = make_object(objects.at(key)->content, std::chrono::milliseconds(60000));
        drop(key.path);
    }
    void put_extent(const std::string& path, std::uint32_t index, const Attributes& attributes,
                    const std::string& text) {
        objects[{.kind = ObjectKind::extent, .path = path, .index = index}] =
            make_object(Extent{attributes, copy_to_blob(std::as_bytes(std::span(text)))});
    }
    // `path` and everything below it leave the cache.
    void drop(std::string_view path) {
        for (const ObjectKey& key : asked) {
            if (is_within(key.path, path)) {
                test::drop(cache, key);
            }
        }
    }
    void fetch(const ObjectKey& key) {
        asked.insert(key);
        ++fetches;
        ++fetched[key.kind];
        if (!hold) {
            deliver(key);
        } else {
            held.push_back(key);
        }
    }
    void deliver(const ObjectKey& key) {
        ObjectKey any_version = key;
        any_version.version = 0;
        any_version.generation = 0;
        const auto found = objects.find(any_version);
        cache.deliver(key, found != objects.end() ? found->second : make_error(ENOENT));
    }

    ReplyPtr reply(Answer& answer, Sent sent = Sent::yes) {
        return std::make_shared<FakeReply>(answer, sent);
    }
    Answer lookup(InodeId parent, std::string_view name) {
        Answer answer;
        operations.lookup(reply(answer), parent, name);
        return answer;
    }
    Answer getattr(InodeId inode) {
        Answer answer;
        operations.getattr(reply(answer), inode);
        return answer;
    }
    Answer read(InodeId inode, std::uint64_t offset, std::size_t bytes) {
        Answer answer;
        operations.read(reply(answer), inode, {.offset = offset, .bytes = bytes});
        return answer;
    }
    Answer fill_lookup(InodeId parent, std::string_view name) {
        Answer answer;
        operations.lookup(reply(answer), parent, name, Operations::By::page_filler);
        return answer;
    }
    Answer fill(InodeId inode, std::uint64_t offset, std::size_t bytes) {
        Answer answer;
        operations.read(reply(answer), inode, {.offset = offset, .bytes = bytes},
                        Operations::By::page_filler);
        return answer;
    }
    static ObjectKey first_extent(const std::string& path, const Attributes& attributes) {
        return {.kind = ObjectKind::extent, .path = path, .version = hash_of(version_of(attributes))};
    }
    Answer readdir(InodeId inode, std::size_t bytes, std::uint64_t offset, Operations::Entries entries,
                   Sent sent = Sent::yes) {
        Answer answer;
        operations.readdir(reply(answer, sent), inode,
                           {.bytes_max = bytes, .offset = offset, .entries = entries});
        return answer;
    }
    Answer getxattr(InodeId inode, const std::string& name, std::size_t bytes) {
        Answer answer;
        operations.getxattr(reply(answer), inode, name, bytes);
        return answer;
    }
    Answer open(InodeId inode, Sent sent = Sent::yes) {
        Answer answer;
        operations.open(reply(answer, sent), inode);
        return answer;
    }
    InodeId tree() { return lookup(root_inode, "t").inode; }

    std::map<ObjectKey, ObjectPtr> objects;
    bool hold = false;
    std::vector<ObjectKey> held;
    std::set<ObjectKey> asked;
    int fetches = 0;
    std::map<ObjectKind, int> fetched;
    std::vector<InodeId> invalidated;
    std::vector<InodeId> contents_invalidated;
    std::vector<std::string> names_invalidated;
    bool hold_notices = false;
    std::deque<std::function<void()>> held_notices;
    FuseCounters counters;
    std::set<ObjectKey> used;  // by programs, whether they asked for it or were told
    Cache cache{{.budget_bytes = std::uint64_t{1} << 30,
                 .on_demand = [this](const ObjectKey& key) { used.insert(key); }},
                [this](const ObjectKey& key, FetchFor) { fetch(key); }};
    const Audience audience;
    const bool has_selinux;
    LastingMemory memory = LastingMemory::make().value();
    Operations operations{{.mount_point = "/m",
                           .trees = Trees({"/t"}),
                           .root = attributes_of(S_IFDIR | 0755, 1),
                           .audience = audience,
                           .has_selinux = has_selinux},
                          cache,
                          counters,
                          {.attributes = [this](InodeId inode) { invalidated.push_back(inode); },
                           .content = [this](InodeId inode) { contents_invalidated.push_back(inode); },
                           .name =
                               [this](InodeId, const std::string& name, const std::function<void()>& then) {
                                   names_invalidated.push_back(name);
                                   if (hold_notices) {
                                       held_notices.push_back(then);
                                   } else {
                                       then();
                                   }
                               }},
                          memory.inodes()};
};

TEST_F(FuseOperations, LooksNamesUp) {
    const InodeId t = tree();
    const Answer file = lookup(t, "file");
    EXPECT_EQ(file.error, 0);
    EXPECT_NE(file.inode, 0U);
    EXPECT_EQ(file.st.st_ino, 10U);
    EXPECT_EQ(file.st.st_size, 5);
    EXPECT_EQ(file.st.st_ctim.tv_nsec, 5);
    EXPECT_EQ(getattr(file.inode).st.st_ino, 10U);
    EXPECT_EQ(counters.lookup, 2U);
    EXPECT_EQ(counters.getattr, 1U);
}

// A replay, which no program has asked for.
TEST_F(FuseOperations, ThePageFillerGetsWhatTheNodeHasAndFetchesNothing) {
    const InodeId t = tree();
    const int fetches_before = fetches;
    EXPECT_EQ(fill_lookup(t, "file").error, EAGAIN);
    fetch({.kind = ObjectKind::entry, .path = "/t/file"});
    const Answer file = fill_lookup(t, "file");
    EXPECT_EQ(file.error, 0);
    EXPECT_EQ(file.st.st_size, 5);
    EXPECT_EQ(file.caching, KernelCaching::never) << "or nobody would see that a program uses the name";
    EXPECT_EQ(fill(file.inode, 0, 100).error, EAGAIN);
    fetch(first_extent("/t/file", tree_entries()[0].attributes));
    EXPECT_EQ(fill(file.inode, 0, 100).text, "hello");
    EXPECT_EQ(fetches, fetches_before + 2);
    EXPECT_EQ(counters.bytes_filled, 5U);
    EXPECT_EQ(counters.read, 0U);
    EXPECT_EQ(fill_lookup(root_inode, "etc").error, 0) << "outside the trees, nobody counts uses";
}

TEST_F(FuseOperations, ThePageFillerKnowsNamesOfABatch) {
    const InodeId t = tree();
    fetch({.kind = ObjectKind::directory, .path = "/t"});
    EXPECT_EQ(fill_lookup(t, "file").error, EAGAIN);
    fetch({.kind = ObjectKind::batch, .path = "/t", .version = 1});
    EXPECT_EQ(fill_lookup(t, "file").st.st_size, 5);
    EXPECT_EQ(fill_lookup(t, "none").error, EAGAIN);
}

TEST_F(FuseOperations, WhatIsFilledCountsAsUsedWhenAProgramLooksTheNameUp) {
    const InodeId t = tree();
    const ObjectKey bytes = first_extent("/t/file", tree_entries()[0].attributes);
    fetch({.kind = ObjectKind::entry, .path = "/t/file"});
    fetch(bytes);
    used.clear();
    const InodeId filled = fill_lookup(t, "file").inode;
    fill(filled, 0, 3);
    fill(filled, 3, 2);
    EXPECT_TRUE(used.empty());
    EXPECT_EQ(lookup(t, "file").inode, filled);
    EXPECT_TRUE(used.contains(bytes));
    EXPECT_EQ(counters.files_read, 1U);
    used.clear();
    lookup(t, "file");
    EXPECT_FALSE(used.contains(bytes)) << "once";
    fill(filled, 0, 5);
    EXPECT_TRUE(used.contains(bytes)) << "at once, where a program has looked the name up before";
}

TEST_F(FuseOperations, ThePageFillerGetsNoOtherVersion) {
    const InodeId t = tree();
    const Attributes told = tree_entries()[0].attributes;
    fetch({.kind = ObjectKind::entry, .path = "/t/file"});
    const InodeId file = fill_lookup(t, "file").inode;
    Attributes other = told;
    other.changed.seconds = 7;
    put_extent("/t/file", 0, other, "HELLO");
    fetch(first_extent("/t/file", told));
    EXPECT_EQ(fill(file, 0, 5).error, EAGAIN);
}

TEST_F(FuseOperations, OpensALargeFileFromALocalOne) {
    BackingId added = 0;
    int removed = 0;
    operations.use(
        Passthrough::start(cache, UniqueFd(::open("/tmp", O_PATH | O_DIRECTORY)),
                           {.add = [&](int) { return ++added; }, .remove = [&](BackingId) { ++removed; }}));
    ASSERT_TRUE(operations.passes_through());
    const InodeId t = tree();
    const InodeId big = lookup(t, "big").inode;
    read(big, 0, 2 * extent_bytes);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    BackingId backing = 0;
    while (backing == 0 && std::chrono::steady_clock::now() < deadline) {
        if ((backing = open(big).backing) == 0) {
            operations.release(big);
        }
    }
    ASSERT_NE(backing, 0);
    EXPECT_EQ(open(big, Sent::no).backing, backing);  // was interrupted, so it is not released
    EXPECT_EQ(removed, 1);                            // of the first question whether the kernel lets us
    operations.release(big);
    operations.forget(big, 1);
    EXPECT_EQ(open(big).error, ESTALE);
    EXPECT_EQ(removed, added);
}

TEST_F(FuseOperations, AnswersAbsentNamesFromOneDirectory) {
    const InodeId t = tree();
    const int before = fetches;
    for (int i = 0; i < 100; ++i) {
        const Answer absent = lookup(t, "absent" + std::to_string(i));
        EXPECT_EQ(absent.error, 0);
        EXPECT_EQ(absent.inode, 0U);
        EXPECT_EQ(absent.caching, KernelCaching::forever);
    }
    EXPECT_EQ(fetches, before + 1);
}

TEST_F(FuseOperations, PassesTheBackingFilesystemsErrorOn) {
    objects[{.kind = ObjectKind::directory, .path = "/t"}] = make_error(EIO);
    EXPECT_EQ(lookup(tree(), "file").error, EIO);
    EXPECT_EQ(readdir(tree(), 4096, 0, Operations::Entries::names).error, EIO);
}

TEST_F(FuseOperations, RefusesNamesThatAreTooLongAndInodesItDoesNotKnow) {
    EXPECT_EQ(lookup(root_inode, std::string(256, 'x')).error, ENAMETOOLONG);
    EXPECT_EQ(lookup(999, "x").error, ESTALE);
    EXPECT_EQ(getattr(999).error, ESTALE);
    EXPECT_EQ(read(999, 0, 1).error, ESTALE);
}

TEST_F(FuseOperations, ForgetsALookupWhoseReplyWasNotTaken) {
    const InodeId t = tree();
    const auto known = operations.inodes().size();
    Answer answer;
    operations.lookup(reply(answer, Sent::no), t, "file");
    EXPECT_EQ(operations.inodes().size(), known);
    readdir(t, 4096, 0, Operations::Entries::with_attributes, Sent::no);
    EXPECT_EQ(operations.inodes().size(), known);
}

TEST_F(FuseOperations, KeepsAbsoluteLinksIntoTheTreesInTheMirror) {
    const InodeId t = tree();
    const std::map<std::string, std::string> expected{
        {"in", "/m/t/file"}, {"out", "/etc/x"}, {"near", "file"}};
    for (const auto& [name, target] : expected) {
        const Answer entry = lookup(t, name);
        EXPECT_EQ(entry.st.st_size, static_cast<off_t>(target.size())) << name;
        EXPECT_EQ(getattr(entry.inode).st.st_size, static_cast<off_t>(target.size())) << name;
        Answer answer;
        operations.readlink(reply(answer), entry.inode);
        EXPECT_EQ(answer.text, target);
    }
    Answer answer;
    operations.readlink(reply(answer), lookup(t, "file").inode);
    EXPECT_EQ(answer.error, EINVAL);
}

TEST_F(FuseOperations, ShowsALinkWhoseTextTheFilesystemRefusesToTell) {
    tree();
    put_directory("/t", {{"refused", "", attributes_of(S_IFLNK | 0777, 16, 51)}});
    const Answer entry = lookup(tree(), "refused");
    EXPECT_EQ(entry.st.st_size, 51);
    Answer answer;
    operations.readlink(reply(answer), entry.inode);
    EXPECT_EQ(answer.error, EPERM);
}

TEST_F(FuseOperations, ReadsWithoutCopyingAcrossExtents) {
    const InodeId big = lookup(tree(), "big").inode;
    const std::string all = text_of(extent_bytes, 'a') + text_of(100, 'A');
    const Answer across = read(big, extent_bytes - 10, 50);
    EXPECT_EQ(across.text, all.substr(extent_bytes - 10, 50));
    EXPECT_EQ(across.pieces, 2U);
    EXPECT_EQ(read(big, extent_bytes + 90, 4096).text, all.substr(extent_bytes + 90));
    EXPECT_EQ(read(big, extent_bytes + 100, 4096).text, "");
    EXPECT_EQ(read(big, std::uint64_t{1} << 62, 4096).text, "");
    EXPECT_EQ(read(big, 0, 2 * extent_bytes).text, all);
    EXPECT_EQ(counters.bytes_read, 50 + 10 + all.size());
}

TEST_F(FuseOperations, DecodesWhatIsReadAndReadsItselfWhatCannotBeDecoded) {
    const Attributes big = attributes_of(S_IFREG | 0644, 11, extent_bytes + 100);
    const std::string all = text_of(extent_bytes, 'a') + text_of(100, 'A');
    const auto plain = std::as_bytes(std::span(all)).first(extent_bytes);
    const Blob coded = lz4_coded(plain).value();
    std::vector<std::byte> damaged(coded.span().begin(), coded.span().end());
    std::fill(damaged.end() - 100, damaged.end(), std::byte{0xff});
    objects[{.kind = ObjectKind::own_extent, .path = "/t/big"}] =
        make_object(Extent{big, copy_to_blob(plain)});
    objects[{.kind = ObjectKind::own_extent, .path = "/t/big", .index = 1}] =
        objects[{.kind = ObjectKind::extent, .path = "/t/big", .index = 1}];
    for (const Blob& blob : {coded, copy_to_blob(damaged)}) {
        drop("/t/big");
        objects[{.kind = ObjectKind::extent, .path = "/t/big"}] =
            make_object(Extent{big, blob, Coding::lz4, extent_bytes});
        const InodeId inode = lookup(tree(), "big").inode;
        EXPECT_EQ(read(inode, extent_bytes - 10, 50).text, all.substr(extent_bytes - 10, 50));
        EXPECT_EQ(read(inode, 70000, 4096).text, all.substr(70000, 4096));
    }
}

// 3 MiB with 4 KiB of data after the first.
class FuseHoles : public FuseOperations {
  protected:
    FuseHoles() {
        put_directory("/t", {{"holes", "", attributes}, {"small", "", attributes_of(S_IFREG | 0644, 21, 5)}});
        put_map({{extent_bytes, extent_bytes + 4096}});
        put_extent("/t/holes", 1, attributes, data);
    }
    static Attributes sparse(std::uint64_t inode) {
        Attributes made = attributes_of(S_IFREG | 0644, inode, 3 * extent_bytes);
        made.blocks = 8;
        return made;
    }
    void put_map(std::vector<DataMap::Segment> segments) {
        objects[{.kind = ObjectKind::data_map, .path = "/t/holes"}] =
            make_object(DataMap{.attributes = attributes, .segments = std::move(segments)});
    }
    Answer seek(InodeId inode, std::int64_t offset, Operations::Sought sought) {
        Answer answer;
        operations.seek(reply(answer), inode, offset, sought);
        return answer;
    }
    // Where lseek(2) leads, or the error, negated.
    std::int64_t data_from(InodeId inode, std::int64_t offset) {
        const Answer answer = seek(inode, offset, Operations::Sought::data);
        return answer.error != 0 ? -answer.error : static_cast<std::int64_t>(answer.size);
    }
    std::int64_t hole_from(InodeId inode, std::int64_t offset) {
        const Answer answer = seek(inode, offset, Operations::Sought::hole);
        return answer.error != 0 ? -answer.error : static_cast<std::int64_t>(answer.size);
    }

    static constexpr std::int64_t mib = extent_bytes;
    const Attributes attributes = sparse(20);
    const std::string data = text_of(4096, 'd') + std::string(extent_bytes - 4096, '\0');
};

TEST_F(FuseHoles, AreSoughtInTheMap) {
    const InodeId holes = lookup(tree(), "holes").inode;
    EXPECT_EQ(data_from(holes, 0), mib);
    EXPECT_EQ(data_from(holes, mib + 5), mib + 5);
    EXPECT_EQ(data_from(holes, mib + 4096), -ENXIO);
    EXPECT_EQ(hole_from(holes, 0), 0);
    EXPECT_EQ(hole_from(holes, mib), mib + 4096);
    EXPECT_EQ(hole_from(holes, 2 * mib), 2 * mib);
    for (const std::int64_t outside : {3 * mib, 3 * mib + 1, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
        EXPECT_EQ(data_from(holes, outside), -ENXIO) << outside;
        EXPECT_EQ(hole_from(holes, outside), -ENXIO) << outside;
    }
    EXPECT_EQ(fetched[ObjectKind::data_map], 1);
    EXPECT_EQ(fetched[ObjectKind::extent], 0);
}

TEST_F(FuseHoles, OfAFileWithAllBlocksAreNotAskedFor) {
    const InodeId small = lookup(tree(), "small").inode;
    EXPECT_EQ(data_from(small, 3), 3);
    EXPECT_EQ(hole_from(small, 3), 5);
    EXPECT_EQ(hole_from(small, 5), -ENXIO);
    EXPECT_EQ(fetched[ObjectKind::data_map], 0);
}

TEST_F(FuseHoles, AreDataWhereTheMapIsNotToBeHad) {
    objects[{.kind = ObjectKind::data_map, .path = "/t/holes"}] = make_error(EIO);
    const InodeId holes = lookup(tree(), "holes").inode;
    EXPECT_EQ(data_from(holes, 7), 7);
    EXPECT_EQ(hole_from(holes, 7), 3 * mib);
    EXPECT_EQ(read(holes, extent_bytes, 4096).text, data.substr(0, 4096));
}

TEST_F(FuseHoles, OfAnotherVersionDoNotCount) {
    const InodeId holes = lookup(tree(), "holes").inode;
    objects[{.kind = ObjectKind::data_map, .path = "/t/holes"}] =
        make_object(DataMap{.attributes = sparse(22), .segments = {}}, error_lifetime);
    EXPECT_EQ(data_from(holes, 0), 0);
    EXPECT_EQ(read(holes, extent_bytes, 4096).text, data.substr(0, 4096));
}

// Whoever was told of a hole does not read it, so the bytes that are read must be of the same version.
TEST_F(FuseHoles, ThatWereToldKeepTheVersion) {
    const InodeId holes = lookup(tree(), "holes").inode;
    EXPECT_EQ(data_from(holes, 0), mib);
    put_extent("/t/holes", 1, sparse(22), text_of(extent_bytes, 'e'));
    EXPECT_EQ(read(holes, extent_bytes, 4096).error, ESTALE);
}

TEST_F(FuseHoles, AreReadWithoutTheirExtents) {
    const InodeId holes = lookup(tree(), "holes").inode;
    const std::string all = std::string(extent_bytes, '\0') + data + std::string(extent_bytes, '\0');
    EXPECT_TRUE(read(holes, 0, 4096).text == all.substr(0, 4096));
    EXPECT_TRUE(read(holes, 0, 3 * extent_bytes).text == all);
    EXPECT_TRUE(read(holes, 2 * extent_bytes - 10, 100).text == all.substr(2 * extent_bytes - 10, 100));
    EXPECT_EQ(fetched[ObjectKind::data_map], 1);
    EXPECT_EQ(fetched[ObjectKind::extent], 1);
}

TEST_F(FuseOperations, AsksForAllExtentsAtOnceAndAnswersWhenTheLastComes) {
    const InodeId big = lookup(tree(), "big").inode;
    hold = true;
    Answer answer;
    operations.read(reply(answer), big, {.offset = 0, .bytes = 2 * extent_bytes});
    ASSERT_EQ(held.size(), 2U);
    deliver(held[1]);
    EXPECT_EQ(answer.replies, 0);
    deliver(held[0]);
    EXPECT_EQ(answer.replies, 1);
    EXPECT_EQ(answer.text.size(), extent_bytes + 100);
}

TEST_F(FuseOperations, AdoptsAnotherVersionOfTheSameSizeBeforeTheFirstBytes) {
    const InodeId file = lookup(tree(), "file").inode;
    put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 17, 5), "there");
    EXPECT_EQ(read(file, 0, 4096).text, "there");
    EXPECT_EQ(invalidated, std::vector<InodeId>{file});
    EXPECT_EQ(getattr(file).st.st_ino, 17U);
    read(file, 0, 4096);
    EXPECT_EQ(invalidated.size(), 1U);
}

TEST_F(FuseOperations, GivesNoBytesOfAnotherSizeThanTheKernelWasTold) {
    for (const std::string text : {"", "he", "hello, you"}) {
        put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 10, 5), "hello");
        drop("/t");
        const Answer told = lookup(tree(), "file");
        put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 10 + text.size(), text.size()), text);
        EXPECT_EQ(read(told.inode, 0, 4096).error, ESTALE) << text;
        EXPECT_TRUE(invalidated.empty()) << "the kernel would not know any more what it was told";
        EXPECT_EQ(getattr(told.inode).st.st_size, told.st.st_size);
        const Answer again = lookup(tree(), "file");
        EXPECT_NE(again.inode, told.inode);
        EXPECT_EQ(again.st.st_size, static_cast<off_t>(text.size()));
        EXPECT_EQ(read(again.inode, 0, 4096).text, text);
        operations.forget(again.inode, 1);
        operations.inodes().detach(again.inode);  // so that the batch counts again
    }
}

// What a reader gives of a file that is written while it reads.
TEST_F(FuseOperations, GivesNoBytesThatDoNotFitTheSize) {
    for (const std::string text : {"", "he", "hello, you"}) {
        drop("/t");
        const InodeId file = lookup(tree(), "file").inode;
        objects[{.kind = ObjectKind::extent, .path = "/t/file"}] = make_object(
            Extent{attributes_of(S_IFREG | 0644, 10, 5), copy_to_blob(std::as_bytes(std::span(text)))},
            std::chrono::milliseconds(0));
        fetches = 0;
        const Answer answer = read(file, 0, 4096);
        EXPECT_EQ(answer.error, ESTALE) << text;
        EXPECT_EQ(answer.text, "");
        EXPECT_EQ(fetches, 3 + 1) << "and for who opens it again";
    }
}

// While it changes, there are no bytes of one version. Afterwards nobody gets another error, whatever the
// snapshot knows of it.
TEST_F(FuseOperations, AFileThatWasChangingIsReadAsItIsWhenItHasSettled) {
    for (const bool had_settled_before : {true, false}) {
        drop("/t");
        put_directory("/t", tree_entries());
        put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 10, 5), "hello");
        const Answer before = lookup(tree(), "file");
        if (had_settled_before) {
            EXPECT_EQ(read(before.inode, 0, 4096).text, "hello");
        }
        drop("/t/file");
        names_invalidated.clear();
        objects[{.kind = ObjectKind::extent, .path = "/t/file"}] = make_error(EAGAIN);
        EXPECT_EQ(read(before.inode, 0, 4096).error, ESTALE);
        EXPECT_EQ(names_invalidated, std::vector<std::string>{"file"});
        const Answer still = lookup(tree(), "file");
        EXPECT_EQ(still.caching, KernelCaching::never) << "it changes still";

        drop("/t/file");
        put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 12, 11), "hello, you!");
        const Answer after = lookup(tree(), "file");
        EXPECT_EQ(after.caching, KernelCaching::forever);
        EXPECT_EQ(after.st.st_size, 11);
        EXPECT_EQ(read(after.inode, 0, 4096).text, "hello, you!");
        EXPECT_EQ(lookup(tree(), "file").inode, after.inode);
        EXPECT_EQ(read(before.inode, 0, 4096).error, ESTALE) << "who has the old one open";
        operations.forget(before.inode, 1);
        operations.forget(after.inode, 2);
        operations.inodes().detach(after.inode);
    }
}

TEST_F(FuseOperations, LooksALinkUpAgainWhoseTargetHasAnotherLength) {
    const InodeId near = lookup(tree(), "near").inode;
    put_directory("/t", {{"near", "file2", attributes_of(S_IFLNK | 0777, 15, 5)}});
    drop("/t");
    Answer answer;
    operations.readlink(reply(answer), near);
    EXPECT_EQ(answer.error, ESTALE) << "the kernel cuts it at the length that it was told";
    const Answer again = lookup(tree(), "near");
    EXPECT_NE(again.inode, near);
    EXPECT_EQ(again.st.st_size, 5);
}

class FuseOperationsForEveryone : public FuseOperations {
  protected:
    FuseOperationsForEveryone() : FuseOperations(Audience::everyone) {}

    // Of a file that has taken the place of one which the kernel has let the caller read.
    void expect_no_bytes(std::uint32_t mode, std::uint32_t user, std::uint32_t group) {
        const InodeId file = lookup(tree(), "file").inode;
        Attributes secret = attributes_of(S_IFREG | mode, 9, 5);
        secret.user = user;
        secret.group = group;
        put_extent("/t/file", 0, secret, "quiet");
        const Answer answer = read(file, 0, 4096);
        EXPECT_EQ(answer.error, ESTALE);
        EXPECT_EQ(answer.text, "");
        // Who opens it again is judged by the rights that it has.
        const Answer again = lookup(tree(), "file");
        EXPECT_NE(again.inode, file);
        EXPECT_EQ(again.st.st_mode, S_IFREG | mode);
        EXPECT_EQ(again.st.st_uid, user);
        EXPECT_EQ(again.st.st_gid, group);
        EXPECT_EQ(read(again.inode, 0, 4096).text, "quiet");
    }
};

TEST_F(FuseOperationsForEveryone, GiveNoBytesOfAFileOfAnotherMode) {
    expect_no_bytes(0600, 0, 0);
}

TEST_F(FuseOperationsForEveryone, GiveNoBytesOfAFileOfAnotherUser) {
    expect_no_bytes(0644, 1, 0);
}

TEST_F(FuseOperationsForEveryone, GiveNoBytesOfAFileOfAnotherGroup) {
    expect_no_bytes(0644, 0, 1);
}

// The kernel asks for the lists itself, and would refuse every access at ENOTSUP.
TEST_F(FuseOperationsForEveryone, AFilesystemWithoutAccessControlListsHasNone) {
    objects[{ObjectKind::acl, "/t/file", 0}] = make_object(std::make_error_code(std::errc::not_supported));
    const InodeId file = lookup(tree(), "file").inode;
    EXPECT_EQ(getxattr(file, acl_names[0], 100).error, ENODATA);
    objects[{ObjectKind::acl, "/t/big", 0}] = make_error(EACCES);
    EXPECT_EQ(getxattr(lookup(tree(), "big").inode, acl_names[0], 100).error, EACCES)
        << "a list that cannot be read is there";
}

TEST_F(FuseOperationsForEveryone, AdoptAnotherVersionWithTheSameRights) {
    const InodeId file = lookup(tree(), "file").inode;
    put_extent("/t/file", 0, attributes_of(S_IFREG | 0644, 17, 5), "there");
    EXPECT_EQ(read(file, 0, 4096).text, "there");
}

TEST_F(FuseOperations, NeverMixesVersions) {
    const InodeId big = lookup(tree(), "big").inode;
    EXPECT_EQ(read(big, 0, 10).error, 0);
    put_extent("/t/big", 1, attributes_of(S_IFREG | 0644, 11, extent_bytes + 50), text_of(50, 'A'));
    EXPECT_EQ(read(big, extent_bytes, 10).error, ESTALE);
    EXPECT_EQ(read(big, extent_bytes - 5, 10).error, ESTALE);
    EXPECT_TRUE(invalidated.empty());
    EXPECT_EQ(names_invalidated, (std::vector<std::string>{"big", "big"}));
}

TEST_F(FuseOperations, AnswersReadersOfAnOldVersionWhenItsNameIsForgotten) {
    const InodeId big = lookup(tree(), "big").inode;
    EXPECT_EQ(read(big, 0, 10).error, 0);
    put_extent("/t/big", 1, attributes_of(S_IFREG | 0644, 11, extent_bytes + 50), text_of(50, 'A'));
    hold_notices = true;
    Answer first;
    Answer second;
    operations.read(reply(first), big, {.offset = extent_bytes, .bytes = 10});
    operations.read(reply(second), big, {.offset = extent_bytes, .bytes = 10});
    EXPECT_EQ(first.replies, 0);
    EXPECT_EQ(second.replies, 0) << "who opens the file now finds the old one again";
    for (const auto& then : held_notices) {
        then();
    }
    EXPECT_EQ(first.error, ESTALE);
    EXPECT_EQ(second.error, ESTALE);
}

TEST_F(FuseOperations, GivesTheNewVersionToWhoOpensAgain) {
    const InodeId t = tree();
    const InodeId old = lookup(t, "big").inode;
    EXPECT_EQ(read(old, 0, 10).error, 0);
    put_extent("/t/big", 0, attributes_of(S_IFREG | 0644, 11, extent_bytes + 50), text_of(extent_bytes, 'b'));
    put_extent("/t/big", 1, attributes_of(S_IFREG | 0644, 11, extent_bytes + 50), text_of(50, 'B'));
    EXPECT_EQ(read(old, extent_bytes, 10).error, ESTALE);
    // Also once the kernel has forgotten it, and though the batch still tells of the old one.
    for (int opening = 0; opening < 2; ++opening) {
        const Answer entry = lookup(t, "big");
        EXPECT_NE(entry.inode, old);
        EXPECT_EQ(entry.st.st_size, static_cast<off_t>(extent_bytes + 50));
        EXPECT_EQ(read(entry.inode, 0, 2 * extent_bytes).text, text_of(extent_bytes, 'b') + text_of(50, 'B'));
        operations.forget(entry.inode, 1);
    }
    EXPECT_EQ(read(old, 0, 10).text, text_of(10, 'a'));
}

TEST_F(FuseOperations, ReadsAgainWhatTurnsOutToBeOfSeveralVersions) {
    const InodeId big = lookup(tree(), "big").inode;
    hold = true;
    Answer answer;
    operations.read(reply(answer), big, {.offset = extent_bytes - 10, .bytes = 20});
    deliver(held.at(0));
    Attributes newer = attributes_of(S_IFREG | 0644, 11, extent_bytes + 100);
    newer.changed.seconds += 1;
    put_extent("/t/big", 0, newer, text_of(extent_bytes, 'b'));
    put_extent("/t/big", 1, newer, text_of(100, 'B'));
    hold = false;
    deliver(held.at(1));
    EXPECT_EQ(answer.replies, 1);
    EXPECT_EQ(answer.text, text_of(extent_bytes, 'b').substr(extent_bytes - 10) + text_of(10, 'B'));
    EXPECT_EQ(getattr(big).st.st_ctim.tv_sec, newer.changed.seconds);
}

TEST_F(FuseOperations, DoesNotShareFilesAboveTheLimit) {
    const LastingMemory other_memory = LastingMemory::make().value();
    Operations limited({.mount_point = "/m",
                        .trees = Trees({"/t"}),
                        .shared_file_bytes_max = extent_bytes,
                        .root = attributes_of(S_IFDIR | 0755, 1)},
                       cache, counters, {}, other_memory.inodes());
    const auto inode_of = [&](InodeId parent, const char* name) {
        Answer answer;
        limited.lookup(reply(answer), parent, name);
        return answer.inode;
    };
    const InodeId t = inode_of(root_inode, "t");
    const std::pair<InodeId, ObjectKind> files[] = {{inode_of(t, "file"), ObjectKind::extent},
                                                    {inode_of(t, "big"), ObjectKind::own_extent}};
    hold = true;
    for (const auto& [inode, kind] : files) {
        held.clear();
        Answer answer;
        limited.read(reply(answer), inode, {.offset = 0, .bytes = 10});
        ASSERT_EQ(held.size(), 1U);
        EXPECT_EQ(held[0].kind, kind);
        deliver(held[0]);
    }
}

// find(1) lists one directory after the other; Python's importer reads files in between.
TEST_F(FuseOperations, FetchesAheadOfAProgramThatWalksATree) {
    constexpr int directories = 30;
    std::vector<Listing::NewEntry> entries{{"file", "", attributes_of(S_IFREG | 0644, 10, 5)}};
    for (int i = 0; i < directories; ++i) {
        const std::string name = "d" + std::to_string(100 + i);
        entries.push_back({name, "", attributes_of(S_IFDIR | 0755, 100U + static_cast<std::uint64_t>(i))});
        put_directory("/t/" + name, {});
    }
    put_directory("/t", entries);
    const InodeId file = lookup(tree(), "file").inode;
    const auto list = [this](InodeId inode) {
        readdir(inode, 4096, 0, Operations::Entries::with_attributes);
    };
    const auto is_fetched = [this](int i) {
        return cache.find({.kind = ObjectKind::directory, .path = "/t/d" + std::to_string(100 + i)}) !=
               nullptr;
    };
    const auto list_numbered = [&](int i) { list(lookup(tree(), "d" + std::to_string(100 + i)).inode); };

    list(tree());
    for (int i = 0; i < directories - 1; ++i) {
        list_numbered(i);
        EXPECT_EQ(read(file, 0, 10).error, 0);
    }
    EXPECT_FALSE(is_fetched(directories - 1));
    drop("/t");
    list(tree());
    for (int i = 0; i < 10; ++i) {
        list_numbered(i);
    }
    EXPECT_TRUE(is_fetched(10));
    EXPECT_TRUE(is_fetched(11));
}

struct ParsedEntry {
    std::string name;
    std::uint64_t number = 0;  // on the backing filesystem
    std::uint64_t offset = 0;
    std::uint32_t type = 0;
    InodeId inode = 0;
    std::uint64_t size = 0;
};

// The kernel's own view of a reply (fs/fuse/readdir.c).
std::vector<ParsedEntry> parse(const std::string& text, Operations::Entries entries) {
    std::vector<ParsedEntry> parsed;
    std::size_t at = 0;
    while (at < text.size()) {
        ParsedEntry entry;
        if (entries == Operations::Entries::with_attributes) {
            fuse_entry_out out{};
            std::memcpy(&out, text.data() + at, sizeof(out));
            entry.inode = out.nodeid;
            entry.size = out.attr.size;
            at += sizeof(out);
        }
        fuse_dirent head{};
        std::memcpy(&head, text.data() + at, FUSE_NAME_OFFSET);
        entry.name = text.substr(at + FUSE_NAME_OFFSET, head.namelen);
        entry.number = head.ino;
        entry.offset = head.off;
        entry.type = head.type;
        parsed.push_back(entry);
        at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + head.namelen);
    }
    return parsed;
}

TEST_F(FuseOperations, ListsDirectoriesInPiecesOfAnySize) {
    const InodeId t = tree();
    using Entries = Operations::Entries;
    for (const auto entries : {Entries::names, Entries::with_attributes}) {
        for (const std::size_t bytes : {170U, 200U, 333U, 4096U}) {
            std::vector<std::string> names;
            std::uint64_t offset = 0;
            for (;;) {
                const auto piece = parse(readdir(t, bytes, offset, entries).text, entries);
                if (piece.empty()) {
                    break;
                }
                for (const auto& entry : piece) {
                    names.push_back(entry.name);
                }
                offset = piece.back().offset;
            }
            EXPECT_EQ(names, (std::vector<std::string>{".", "..", "big", "file", "in", "near", "out"}))
                << bytes;
        }
    }
}

TEST_F(FuseOperations, GivesAttributesWithTheNamesAndCountsOnlyWhatItGave) {
    const InodeId t = tree();
    const auto known = operations.inodes().size();
    // Room for ".", ".." and one more.
    const auto few = parse(readdir(t, 3 * 160, 0, Operations::Entries::with_attributes).text,
                           Operations::Entries::with_attributes);
    ASSERT_EQ(few.size(), 3U);
    EXPECT_EQ(operations.inodes().size(), known + 1);
    EXPECT_EQ(few[0].inode, 0U);
    EXPECT_EQ(few[0].number, 2U);
    EXPECT_EQ(few[1].number, 1U);
    EXPECT_EQ(few[2].size, extent_bytes + 100);
    EXPECT_EQ(few[2].inode, lookup(t, "big").inode);
    const auto links =
        parse(readdir(t, 4096, few.back().offset + 1, Operations::Entries::with_attributes).text,
              Operations::Entries::with_attributes);
    EXPECT_EQ(links.front().name, "in");
    EXPECT_EQ(links.front().size, std::string("/m/t/file").size());
}

// The attributes that a program has no use for cost an operation each there.
TEST_F(FuseOperations, GivesNoAttributesWithTheNamesWhereTheFilesystemIsSlow) {
    put_directory("/t", tree_entries(), test::slowly);
    const InodeId t = tree();
    const auto known = operations.inodes().size();
    const auto list = [&] {
        return parse(readdir(t, 4096, 0, Operations::Entries::with_attributes).text,
                     Operations::Entries::with_attributes);
    };
    for (const auto& entry : list()) {
        EXPECT_EQ(entry.inode, 0U) << entry.name;
    }
    EXPECT_EQ(fetched[ObjectKind::batch], 0);
    EXPECT_EQ(operations.inodes().size(), known);
    EXPECT_EQ(list()[3].name, "file");
    EXPECT_EQ(list()[3].number, 10U);
    EXPECT_EQ(list()[3].type, static_cast<std::uint32_t>(S_IFREG >> 12));

    // They cost nothing once the batch is here.
    cache.deliver({.kind = ObjectKind::batch, .path = "/t", .version = 1},
                  objects.at({.kind = ObjectKind::batch, .path = "/t"}));
    const auto entries = list();
    ASSERT_EQ(entries.size(), 7U);
    for (std::size_t i = 2; i < entries.size(); ++i) {
        EXPECT_NE(entries[i].inode, 0U) << entries[i].name;
    }
    EXPECT_EQ(entries[3].size, 5U);
    EXPECT_EQ(entries[3].inode, lookup(t, "file").inode);
    EXPECT_EQ(fetched[ObjectKind::batch], 0);
    EXPECT_EQ(fetched[ObjectKind::entry], 1) << "of /t itself";
}

// What a replay has fetched, programs need not ask for. The next replay needs it again.
TEST_F(FuseOperations, WhatTheCacheHasOfANameIsToldWithTheNamesAndUsed) {
    put_directory("/t", tree_entries(), test::slowly);
    const InodeId t = tree();
    for (const char* path : {"/t/file", "/t/in", "/t/near"}) {
        cache.deliver({.kind = ObjectKind::entry, .path = path},
                      objects.at({.kind = ObjectKind::entry, .path = path}));
    }
    give_lifetime({.kind = ObjectKind::entry, .path = "/t/near"});
    cache.deliver({.kind = ObjectKind::entry, .path = "/t/near"},
                  objects.at({.kind = ObjectKind::entry, .path = "/t/near"}));
    used.clear();
    readdir(t, 4096, 0, Operations::Entries::names);
    EXPECT_EQ(used, (std::set<ObjectKey>{{.kind = ObjectKind::directory, .path = "/t"}}));
    std::map<std::string, InodeId> inodes;
    for (const auto& entry : parse(readdir(t, 4096, 0, Operations::Entries::with_attributes).text,
                                   Operations::Entries::with_attributes)) {
        inodes[entry.name] = entry.inode;
    }
    EXPECT_EQ(inodes.at("big"), 0U) << "nobody has asked for it";
    EXPECT_EQ(inodes.at("near"), 0U) << "the kernel keeps what it is told";
    EXPECT_TRUE(used.contains({.kind = ObjectKind::entry, .path = "/t/file"}));
    EXPECT_TRUE(used.contains({.kind = ObjectKind::entry, .path = "/t/in"}));
    EXPECT_FALSE(used.contains({.kind = ObjectKind::entry, .path = "/t/near"}));
    EXPECT_EQ(fetched[ObjectKind::entry], 1) << "of /t itself";
    EXPECT_EQ(inodes.at("file"), lookup(t, "file").inode);
    EXPECT_EQ(inodes.at("in"), lookup(t, "in").inode);
}

TEST_F(FuseOperations, AsksForTheBatchFirstWhereTheFilesystemAnswersAtOnce) {
    const InodeId t = tree();
    hold = true;
    Answer answer;
    operations.readdir(reply(answer), t,
                       {.bytes_max = 4096, .offset = 0, .entries = Operations::Entries::with_attributes});
    ASSERT_EQ(held.size(), 1U);
    EXPECT_EQ(held[0].kind, ObjectKind::directory);
    deliver(held[0]);
    ASSERT_EQ(held.size(), 2U);
    EXPECT_EQ(held[1], (ObjectKey{ObjectKind::batch, "/t", 0, 1}));
    EXPECT_EQ(answer.replies, 0);
    deliver(held[1]);
    EXPECT_EQ(answer.replies, 1);
    EXPECT_EQ(parse(answer.text, Operations::Entries::with_attributes)[2].size, extent_bytes + 100);
    // Nor is it asked for by who wants the names alone.
    drop("/t");
    hold = false;
    fetched.clear();
    readdir(t, 4096, 0, Operations::Entries::names);
    EXPECT_EQ(fetched[ObjectKind::batch], 0);
}

TEST_F(FuseOperations, WithoutABatchItGivesNamesAlone) {
    const InodeId t = tree();
    for (const int error : {EAGAIN, EIO}) {
        drop("/t");
        objects[{.kind = ObjectKind::batch, .path = "/t"}] = make_error(error);
        const auto entries = parse(readdir(t, 4096, 0, Operations::Entries::with_attributes).text,
                                   Operations::Entries::with_attributes);
        ASSERT_EQ(entries.size(), 7U);
        for (const auto& entry : entries) {
            EXPECT_EQ(entry.inode, 0U) << entry.name;
        }
    }
}

// ---- what has a short life is not kept by the kernel

TEST_F(FuseOperations, TheKernelKeepsEverythingOfTheSnapshot) {
    for (const auto operation_time : {test::at_once, test::slowly}) {
        put_directory("/t", tree_entries(), operation_time);
        drop("/t");
        const Answer file = lookup(tree(), "file");
        EXPECT_EQ(file.caching, KernelCaching::forever);
        EXPECT_EQ(lookup(tree(), "absent").caching, KernelCaching::forever);
        EXPECT_EQ(read(file.inode, 0, 4096).text, "hello");
        readdir(tree(), 4096, 0, Operations::Entries::names);
        readdir(tree(), 4096, 0, Operations::Entries::with_attributes);
    }
    EXPECT_TRUE(contents_invalidated.empty());
    EXPECT_TRUE(invalidated.empty());
}

TEST_F(FuseOperations, NamesOfAShortLifeAreToBeLookedUpEachTime) {
    const InodeId t = tree();
    for (const auto operation_time : {test::at_once, test::slowly}) {
        put_directory("/t", tree_entries(), operation_time);
        const bool is_fast = operation_time == test::at_once;
        give_lifetime(is_fast ? ObjectKey{.kind = ObjectKind::batch, .path = "/t"}
                              : ObjectKey{.kind = ObjectKind::entry, .path = "/t/file"});
        drop("/t");
        for (int i = 0; i < 2; ++i) {
            const Answer file = lookup(t, "file");
            EXPECT_NE(file.inode, 0U);
            EXPECT_EQ(file.caching, KernelCaching::never);
        }
    }
    put_directory("/t", tree_entries());
    give_lifetime({.kind = ObjectKind::directory, .path = "/t"});
    const Answer absent = lookup(t, "absent");
    EXPECT_EQ(absent.error, 0);
    EXPECT_EQ(absent.inode, 0U);
    EXPECT_EQ(absent.caching, KernelCaching::never) << "absent from names of a short life";
}

TEST_F(FuseOperations, BytesOfAShortLifeAreReadEachTime) {
    const InodeId t = tree();
    const InodeId big = lookup(t, "big").inode;
    const InodeId file = lookup(t, "file").inode;
    give_lifetime({.kind = ObjectKind::extent, .path = "/t/big", .index = 1});
    EXPECT_EQ(read(big, 0, 10).error, 0);
    EXPECT_TRUE(contents_invalidated.empty()) << "an extent that lasts";
    EXPECT_EQ(read(big, extent_bytes - 5, 10).error, 0);
    EXPECT_EQ(contents_invalidated, std::vector<InodeId>{big}) << "one of two";
    EXPECT_EQ(read(big, extent_bytes, 10).error, 0);
    EXPECT_EQ(contents_invalidated, (std::vector<InodeId>{big, big})) << "each time";
    EXPECT_EQ(read(file, 0, 10).text, "hello");
    EXPECT_EQ(contents_invalidated.size(), 2U);
}

TEST_F(FuseOperations, NamesOfAShortLifeAreListedEachTime) {
    const InodeId t = tree();
    give_lifetime({.kind = ObjectKind::directory, .path = "/t"});
    const auto entries =
        parse(readdir(t, 4096, 0, Operations::Entries::names).text, Operations::Entries::names);
    EXPECT_EQ(contents_invalidated, std::vector<InodeId>{t});
    readdir(t, 4096, 0, Operations::Entries::with_attributes);
    EXPECT_EQ(contents_invalidated, (std::vector<InodeId>{t, t})) << "each time";
    readdir(t, 4096, entries.back().offset, Operations::Entries::names);
    EXPECT_EQ(contents_invalidated, (std::vector<InodeId>{t, t, t})) << "also of their end";
    readdir(root_inode, 4096, 0, Operations::Entries::names);
    EXPECT_EQ(contents_invalidated.size(), 3U);
}

// The kernel keeps what it is told with the names.
TEST_F(FuseOperations, AttributesOfAShortLifeAreNotToldWithTheNames) {
    const InodeId t = tree();
    give_lifetime({.kind = ObjectKind::batch, .path = "/t"});
    for (const auto& entry : parse(readdir(t, 4096, 0, Operations::Entries::with_attributes).text,
                                   Operations::Entries::with_attributes)) {
        EXPECT_EQ(entry.inode, 0U) << entry.name;
    }
}

// Objects of every version in one table, as the fetch function has it.
class FuseHugeDirectory : public FuseOperations {
  protected:
    static constexpr std::size_t count = 2 * piece_entries + 5;

    static std::string number(std::size_t i) { return std::to_string(10000000 + i); }
    static ObjectPtr directory_of(std::uint64_t version, std::size_t first,
                                  std::chrono::microseconds operation_time = test::slowly) {
        Directory made;
        made.version = version;
        made.entries = count;
        made.operation_time = operation_time;
        for (std::size_t begin = 0; begin < count; begin += piece_entries) {
            made.first_names.push_back(number(first + begin));
        }
        return make_object(made);
    }
    void put_pieces(std::size_t first) {
        for (std::size_t begin = 0; begin < count; begin += piece_entries) {
            std::vector<Listing::NewEntry> names;
            for (std::size_t i = begin; i < std::min(begin + piece_entries, count); ++i) {
                names.push_back(
                    {number(first + i), "", attributes_of(i % 2 == 0 ? S_IFREG : S_IFDIR, 20 + i)});
            }
            objects[piece(begin / piece_entries)] =
                make_object(Listing(std::move(names), Listing::Detail::names_only));
        }
    }
    static ObjectKey piece(std::size_t index) {
        return {ObjectKind::names, "/t", static_cast<std::uint32_t>(index)};
    }
    // What a program sees from this offset on.
    std::vector<std::string> list(std::size_t bytes, std::uint64_t offset = 0) {
        std::vector<std::string> names;
        for (;;) {
            const Answer answer = readdir(tree(), bytes, offset, Operations::Entries::with_attributes);
            EXPECT_EQ(answer.error, 0);
            const auto entries = parse(answer.text, Operations::Entries::with_attributes);
            if (entries.empty()) {
                return names;
            }
            for (const auto& entry : entries) {
                names.push_back(entry.name);
            }
            offset = entries.back().offset;
        }
    }
    static std::vector<std::string> all_from(std::size_t first) {
        std::vector<std::string> names = {".", ".."};
        for (std::size_t i = 0; i < count; ++i) {
            names.push_back(number(first + i));
        }
        return names;
    }
    const ObjectKey directory{ObjectKind::directory, "/t"};
};

TEST_F(FuseHugeDirectory, IsListedByNameAlone) {
    objects[directory] = directory_of(7, 0);
    put_pieces(0);
    const auto entries = parse(readdir(tree(), 4096, 2, Operations::Entries::with_attributes).text,
                               Operations::Entries::with_attributes);
    ASSERT_GE(entries.size(), 2U);
    EXPECT_EQ(entries[0].inode, 0U);
    EXPECT_EQ(entries[0].number, 20U);
    EXPECT_EQ(entries[0].type, static_cast<std::uint32_t>(S_IFREG >> 12));
    EXPECT_EQ(entries[1].type, static_cast<std::uint32_t>(S_IFDIR >> 12));
}

TEST_F(FuseHugeDirectory, IsListedWithAttributesWhereTheFilesystemAnswersAtOnce) {
    objects[directory] = directory_of(7, 0, test::at_once);
    put_pieces(0);
    // Of a batch in the second piece.
    const std::size_t position = piece_entries + batch_entries;
    const auto number_of_batch = static_cast<std::uint32_t>(position / batch_entries);
    objects[{ObjectKind::batch, "/t", number_of_batch}] = make_object(
        Listing({{number(position), "", attributes_of(S_IFREG | 0644, 77, 5)}}, Listing::Detail::attributes));
    const auto first =
        parse(readdir(tree(), 4096, 0, Operations::Entries::names).text, Operations::Entries::names);
    const std::uint64_t tag = first.back().offset & ~std::uint64_t{0xffffffff};
    EXPECT_NE(tag, 0U) << "which names it counts";
    fetched.clear();
    const auto entries =
        parse(readdir(tree(), 4096, tag | (position + 2), Operations::Entries::with_attributes).text,
              Operations::Entries::with_attributes);
    ASSERT_GE(entries.size(), 2U);
    EXPECT_EQ(entries[0].name, number(position));
    EXPECT_NE(entries[0].inode, 0U);
    EXPECT_EQ(entries[0].number, 77U);
    EXPECT_EQ(entries[1].inode, 0U) << "what the batch lacks is told by name";
    EXPECT_EQ(fetched[ObjectKind::batch], 2) << "and the next one";
    const auto last = parse(
        readdir(tree(), 4096, tag | (position + 2 + batch_entries - 3), Operations::Entries::with_attributes)
            .text,
        Operations::Entries::with_attributes);
    EXPECT_EQ(last.size(), 3U) << "an answer ends where its batch does";
    fetched.clear();
    readdir(tree(), 4096, 0, Operations::Entries::with_attributes);
    EXPECT_EQ(fetched[ObjectKind::batch], 1)
        << "the kernel asks for attributes with the first names in any case";
    objects[{ObjectKind::batch, "/t"}] = make_error(EAGAIN);
    EXPECT_EQ(list(65536), all_from(0));
}

TEST_F(FuseHugeDirectory, IsListedInAnswersOfAnySize) {
    objects[directory] = directory_of(7, 0);
    put_pieces(0);
    for (const std::size_t bytes : {170U, 4096U, 1U << 20U}) {
        EXPECT_EQ(list(bytes), all_from(0)) << bytes;
    }
}

TEST_F(FuseHugeDirectory, ThePiecesThatComeNextAreFetchedAhead) {
    objects[directory] = directory_of(7, 0);
    put_pieces(0);
    readdir(tree(), 4096, 0, Operations::Entries::names);
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_NE(cache.find({ObjectKind::names, "/t", i, 7}), nullptr);
    }
    const int before = fetches;
    EXPECT_EQ(list(4096).size(), count + 2);
    EXPECT_EQ(fetches, before);
}

// A program that is in the middle of names which nobody has any more gets an error, never other ones' rest.
TEST_F(FuseHugeDirectory, NamesOfTwoVersionsAreNotMixed) {
    objects[directory] = directory_of(7, 0);
    put_pieces(0);
    auto entries =
        parse(readdir(tree(), 4096, 0, Operations::Entries::names).text, Operations::Entries::names);
    const std::uint64_t middle = entries.back().offset;
    drop("/t");
    objects[piece(0)] = make_object(directory_of(8, 1)->content, error_lifetime);
    EXPECT_EQ(readdir(tree(), 4096, middle, Operations::Entries::names).error, ESTALE);
    EXPECT_EQ(cache.find(directory)->directory()->version, 8U);

    // Who begins now gets the new ones, and they are there in full.
    drop("/t");
    objects[directory] = directory_of(8, 1);
    put_pieces(1);
    EXPECT_EQ(list(4096), all_from(1));
    objects[piece(0)] = make_object(directory_of(8, 1)->content, error_lifetime);
    EXPECT_EQ(readdir(tree(), 4096, middle, Operations::Entries::names).error, ESTALE);
    put_directory("/t", {{"a", "", attributes_of(S_IFREG, 20)}});
    objects[piece(0)] = make_object(objects.at(directory)->content, error_lifetime);
    drop("/t");
    EXPECT_EQ(readdir(tree(), 4096, middle, Operations::Entries::names).error, ESTALE)
        << "a small one by now";
}

TEST_F(FuseOperations, WhoHasBegunGoesOnWithTheNamesOfTheBeginning) {
    const InodeId t = tree();
    const auto first =
        parse(readdir(t, 3 * 32, 0, Operations::Entries::names).text, Operations::Entries::names);
    const auto rest = [&] { return readdir(t, 4096, first.back().offset, Operations::Entries::names).text; };
    const std::string before = rest();
    Directory now;
    now.version = 2;
    objects[{.kind = ObjectKind::directory, .path = "/t"}] = make_directory(now);
    cache.refresh({.path = "/t", .id = 5});
    EXPECT_EQ(rest(), before);
    const auto anew = parse(readdir(t, 4096, 0, Operations::Entries::names).text, Operations::Entries::names);
    EXPECT_EQ(anew.size(), 2U) << "nothing but the dots";
    EXPECT_EQ(rest(), before);
}

TEST_F(FuseHugeDirectory, WhoBeginsGetsTheNamesThatThereAre) {
    objects[directory] = directory_of(7, 0);
    const ObjectPtr now = directory_of(8, 1);
    cache.deliver({ObjectKind::names, "/t", 0, 7}, make_object(now->content, error_lifetime));
    put_pieces(1);
    EXPECT_EQ(list(4096), all_from(1));
}

TEST_F(FuseHugeDirectory, TwoVersionsThatReplaceEachOtherEnd) {
    objects[directory] = directory_of(7, 0);
    cache.deliver({ObjectKind::names, "/t", 0, 7}, make_object(directory_of(8, 1)->content, error_lifetime));
    cache.deliver({ObjectKind::names, "/t", 0, 8}, make_object(directory_of(7, 0)->content, error_lifetime));
    EXPECT_EQ(readdir(tree(), 4096, 0, Operations::Entries::names).error, ESTALE);
}

TEST_F(FuseHugeDirectory, AnErrorOfAPieceIsTheAnswer) {
    objects[directory] = directory_of(7, 0);
    objects[piece(0)] = make_error(EIO);
    EXPECT_EQ(readdir(tree(), 4096, 0, Operations::Entries::names).error, EIO);
}

TEST_F(FuseOperations, FollowsTheSizeRulesOfExtendedAttributes) {
    const InodeId file = lookup(tree(), "file").inode;
    const auto get = [&](const std::string& name, std::size_t bytes) { return getxattr(file, name, bytes); };
    EXPECT_EQ(get("user.a", 0).size, 5U);
    EXPECT_EQ(get("user.a", 4).error, ERANGE);
    EXPECT_EQ(get("user.a", 5).text, "value");
    EXPECT_EQ(get("user.b", 5).text, "");
    EXPECT_EQ(get("user.c", 5).error, ENODATA);
    Answer list;
    operations.listxattr(reply(list), file, 100);
    EXPECT_EQ(list.text, std::string("user.a\0user.b\0", 14));
    Answer size;
    operations.listxattr(reply(size), file, 0);
    EXPECT_EQ(size.size, 14U);
    objects[{.kind = ObjectKind::xattrs, .path = "/t"}] = make_error(EOPNOTSUPP);
    EXPECT_EQ(getxattr(tree(), "user.a", 0).error, EOPNOTSUPP);
}

// Not those that the list has: not every filesystem lists them.
TEST_F(FuseOperations, AccessControlListsAreAskedForByName) {
    const InodeId file = lookup(tree(), "file").inode;
    const ObjectKey access{ObjectKind::acl, "/t/file", 0};
    objects[access] = make_object(Xattrs{{acl_names[0], "list"}});
    objects[{ObjectKind::acl, "/t/file", 1}] = make_object(Xattrs());
    EXPECT_EQ(getxattr(file, "system.posix_acl_access", 100).text, "list");
    EXPECT_EQ(getxattr(file, "system.posix_acl_access", 0).size, 4U);
    EXPECT_EQ(getxattr(file, "system.posix_acl_default", 100).error, ENODATA);
}

TEST_F(FuseOperations, AFilesystemWithoutAccessControlListsSaysSo) {
    objects[{ObjectKind::acl, "/t/file", 0}] = make_object(std::make_error_code(std::errc::not_supported));
    EXPECT_EQ(getxattr(lookup(tree(), "file").inode, acl_names[0], 100).error, EOPNOTSUPP);
}

TEST_F(FuseOperations, AFileWithoutALabelHasNone) {
    EXPECT_EQ(getxattr(lookup(tree(), "file").inode, "security.selinux", 255).error, ENODATA);
}

class FuseOperationsWithoutSelinux : public FuseOperations {
  protected:
    FuseOperationsWithoutSelinux() : FuseOperations(Audience::launching_user, false) {}
};

TEST_F(FuseOperationsWithoutSelinux, LabelsThatAreThereAreTold) {
    const InodeId file = lookup(tree(), "file").inode;
    EXPECT_EQ(getxattr(file, "security.selinux", 255).error, EOPNOTSUPP);
    EXPECT_EQ(getxattr(file, "user.c", 255).error, ENODATA);
    const ObjectKey directory = {.kind = ObjectKind::xattrs, .path = "/t"};
    objects[directory] = make_object(Xattrs{{"security.selinux", "label"}});
    EXPECT_EQ(getxattr(tree(), "security.selinux", 255).text, "label");
}

}  // namespace
}  // namespace copper
