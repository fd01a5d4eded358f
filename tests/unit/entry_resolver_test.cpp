#include "cache/entry_resolver.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/support/directory_object.hpp"
#include "tests/support/drop.hpp"

namespace copper {
namespace {

Listing::NewEntry file(std::string name, std::uint64_t inode, std::string target = {}) {
    return {.name = std::move(name),
            .target = std::move(target),
            .attributes = {.inode = inode, .mode = S_IFREG}};
}

ObjectPtr entries_of(std::vector<Listing::NewEntry> entries) {
    return make_object(Listing(std::move(entries), Listing::Detail::attributes));
}

ObjectPtr for_now(const ObjectPtr& object) {
    return make_object(object->content, error_lifetime);
}

// Of a number, so that the names sort like numbers.
std::string number(std::size_t i) {
    return std::to_string(10000000 + i);
}

// Answers each fetch at once from a table and notes what was asked.
class Resolve : public testing::Test {
  protected:
    Resolution resolve(const std::string& directory, const std::string& name) {
        Resolution result{.found = tl::unexpected(std::make_error_code(std::errc::timed_out))};
        int calls = 0;
        resolver.resolve(directory, name, [&](const Resolution& resolution) {
            result = resolution;
            ++calls;
        });
        EXPECT_EQ(calls, 1);
        return result;
    }
    bool is_present(const std::string& name) {
        const auto found = resolve("/tree", name).found;
        EXPECT_TRUE(found);
        return found && found->has_value();
    }
    std::uint64_t inode_of(const std::string& name) {
        const auto found = resolve("/tree", name).found;
        EXPECT_TRUE(found && *found) << name;
        return found && *found ? (*found)->attributes.inode : 0;
    }

    void drop_all() {
        for (const ObjectKey& key : asked) {
            test::drop(cache, key);
        }
    }
    void fetch(const ObjectKey& key) {
        asked.insert(key);
        fetched.push_back(to_string(key));
        ++fetched_of[key.kind];
        const auto found = objects.find(key);
        cache.deliver(key, found != objects.end() ? found->second : make_error(EIO));
    }

    // The object of a directory with the names of the numbers from `first` on, whose pieces are put into the
    // table.
    ObjectPtr make(std::uint64_t version, std::size_t first, std::size_t count) {
        std::vector<Listing::NewEntry> entries;
        for (std::size_t i = 0; i < count; ++i) {
            entries.push_back(file(number(first + i), 0));
        }
        if (count <= piece_entries) {
            return make_object(test::directory_of(std::move(entries), version, operation_time));
        }
        Directory directory;
        directory.version = version;
        directory.entries = count;
        directory.operation_time = operation_time;
        for (std::size_t begin = 0; begin < count; begin += piece_entries) {
            directory.first_names.push_back(entries[begin].name);
            const std::vector<Listing::NewEntry> names(
                entries.begin() + static_cast<std::ptrdiff_t>(begin),
                entries.begin() + static_cast<std::ptrdiff_t>(std::min(begin + piece_entries, count)));
            objects[piece(begin / piece_entries, version)] =
                make_object(Listing(names, Listing::Detail::names_only));
        }
        return make_object(directory);
    }
    // Each of the numbers below `count`, with its own number as its inode.
    void put_batches_and_entries(std::uint64_t version, std::size_t count) {
        for (std::size_t begin = 0; begin < count; begin += batch_entries) {
            std::vector<Listing::NewEntry> entries;
            for (std::size_t i = begin; i < std::min(begin + batch_entries, count); ++i) {
                entries.push_back(file(number(i), i));
                put_entry(number(i), i);
            }
            objects[batch(begin / batch_entries, version)] = entries_of(std::move(entries));
        }
    }
    void put_entry(const std::string& name, std::uint64_t inode) {
        objects[entry(name)] = entries_of({file(name, inode)});
    }
    static ObjectKey piece(std::size_t number, std::uint64_t version) {
        return {ObjectKind::names, "/tree", static_cast<std::uint32_t>(number), version};
    }
    static ObjectKey batch(std::size_t number, std::uint64_t version) {
        return {ObjectKind::batch, "/tree", static_cast<std::uint32_t>(number), version};
    }
    static ObjectKey entry(const std::string& name) {
        return {.kind = ObjectKind::entry, .path = "/tree/" + name};
    }

    const Trees trees{{"/tree"}};
    std::chrono::microseconds operation_time = test::at_once;
    const ObjectKey directory{ObjectKind::directory, "/tree"};
    std::map<ObjectKey, ObjectPtr> objects;
    std::set<ObjectKey> asked;
    std::vector<std::string> fetched;
    std::map<ObjectKind, int> fetched_of;
    TimePoint time{std::chrono::hours(1)};
    Cache cache{{.budget_bytes = 1U << 30U, .clock = [this] { return time; }},
                [this](const ObjectKey& key, FetchFor) { fetch(key); }};
    EntryResolver resolver{cache, trees};
};

TEST_F(Resolve, TheNamesAnswerForAbsentOnesAndABatchForPresentOnes) {
    objects[directory] = make_object(test::directory_of({file("a", 1), file("l", 2)}, 7));
    objects[batch(0, 7)] = entries_of({file("a", 1), file("l", 2, "target")});
    EXPECT_EQ(inode_of("a"), 1U);
    EXPECT_EQ((*resolve("/tree", "l").found)->target, "target");
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(is_present("absent" + std::to_string(i)));
    }
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(batch(0, 7))}))
        << "absent names cost nothing";
}

TEST_F(Resolve, NothingIsInAnEmptyDirectory) {
    objects[directory] = make_object(Directory());
    EXPECT_FALSE(is_present("a"));
    EXPECT_EQ(fetched, std::vector<std::string>{to_string(directory)});
}

TEST_F(Resolve, TheRightPieceAndTheRightBatchAnswer) {
    objects[directory] = make(7, 0, 3 * piece_entries);
    const std::string name = number(piece_entries + batch_entries + 3);
    const std::size_t right_batch = piece_entries / batch_entries + 1;
    objects[batch(right_batch, 7)] = entries_of({file(name, 77)});
    EXPECT_EQ(inode_of(name), 77U);
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(piece(1, 7)),
                                                 to_string(batch(right_batch, 7))}));
}

TEST_F(Resolve, AnAbsentNameCostsAPieceAtMost) {
    objects[directory] = make(7, 0, 3 * piece_entries);
    EXPECT_FALSE(is_present("0")) << "before all others";
    EXPECT_EQ(fetched, std::vector<std::string>{to_string(directory)});
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(is_present(number(piece_entries) + "." + std::to_string(i)));
        EXPECT_FALSE(is_present("z" + std::to_string(i))) << "after all others";
    }
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(piece(1, 7)),
                                                 to_string(piece(2, 7))}));
}

TEST_F(Resolve, WhatABatchLacksIsAskedForItself) {
    objects[directory] = make(7, 0, 10);
    objects[batch(0, 7)] = entries_of({});
    objects[entry(number(3))] = make_error(EACCES);
    const auto result = resolve("/tree", number(3)).found;
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), std::errc::permission_denied);
}

// A batch of this node's names is not available: its reader has other ones, or trouble.
TEST_F(Resolve, WithoutABatchTheEntryIsAsked) {
    objects[directory] = make(7, 0, 10);
    for (const int error : {EAGAIN, EIO, ESTALE}) {
        drop_all();
        objects[batch(0, 7)] = make_error(error);
        put_entry(number(3), 33);
        EXPECT_EQ(inode_of(number(3)), 33U) << error;
    }
}

// ---- a filesystem that does not answer at once

class ResolveSlowly : public Resolve {
  protected:
    ResolveSlowly() { operation_time = test::slowly; }
};

TEST_F(ResolveSlowly, OneNameCostsOneEntryAndNoBatch) {
    objects[directory] = make(7, 0, 1000);
    put_batches_and_entries(7, 1000);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(inode_of(number(300)), 300U);
    }
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(entry(number(300)))}));
}

TEST_F(ResolveSlowly, OneNameOfAHugeDirectoryCostsItsPieceAndOneEntry) {
    objects[directory] = make(7, 0, 3 * piece_entries);
    const std::string name = number(piece_entries + 3);
    put_entry(name, 5);
    EXPECT_EQ(inode_of(name), 5U);
    EXPECT_EQ(fetched, (std::vector<std::string>{to_string(directory), to_string(piece(1, 7)),
                                                 to_string(entry(name))}));
}

TEST_F(ResolveSlowly, OneNameAfterTheOtherCostsAFewEntriesAndTheBatches) {
    objects[directory] = make(7, 0, 1000);
    put_batches_and_entries(7, 1000);
    for (std::size_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(inode_of(number(i)), i);
    }
    EXPECT_GE(fetched_of[ObjectKind::entry], static_cast<int>(BatchEvidence::in_a_row));
    EXPECT_LE(fetched_of[ObjectKind::entry], static_cast<int>(BatchEvidence::in_a_row) + 1);
    EXPECT_EQ(fetched_of[ObjectKind::batch], 2);
    EXPECT_EQ(fetched_of[ObjectKind::directory], 1);
}

TEST_F(ResolveSlowly, NamesHereAndThereCostAnEntryEach) {
    objects[directory] = make(7, 0, 2000);
    put_batches_and_entries(7, 2000);
    std::vector<std::size_t> order(2000 / 20);
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = 20 * i;
    }
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    for (const std::size_t i : order) {
        ASSERT_EQ(inode_of(number(i)), i);
    }
    EXPECT_EQ(fetched_of[ObjectKind::entry], static_cast<int>(order.size()));
    EXPECT_EQ(fetched_of[ObjectKind::batch], 0);
}

TEST_F(ResolveSlowly, AnAbsentNameCostsNothing) {
    objects[directory] = make(7, 0, 1000);
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(is_present(number(500) + "." + std::to_string(i)));
        EXPECT_FALSE(is_present("0." + std::to_string(i))) << "before all others";
    }
    EXPECT_EQ(fetched, std::vector<std::string>{to_string(directory)});
}

TEST_F(ResolveSlowly, ABatchThatIsHereAlreadyAnswers) {
    objects[directory] = make(7, 0, 1000);
    put_batches_and_entries(7, 1000);
    cache.deliver(batch(0, 7), objects[batch(0, 7)]);
    EXPECT_EQ(inode_of(number(400)), 400U);
    EXPECT_EQ(inode_of(number(5)), 5U);
    EXPECT_EQ(fetched, std::vector<std::string>{to_string(directory)});
    EXPECT_EQ(inode_of(number(600)), 600U) << "of another batch";
    EXPECT_EQ(fetched_of[ObjectKind::entry], 1);
    // What it lacks, and one of another version, tell nothing.
    drop_all();
    cache.deliver(batch(0, 7), entries_of({file(number(1), 1)}));
    cache.deliver(batch(0, 6), objects[batch(0, 7)]);
    EXPECT_EQ(inode_of(number(400)), 400U);
    EXPECT_EQ(fetched_of[ObjectKind::entry], 2);
}

// ---- what the kernel may keep

TEST_F(Resolve, WhatIsOfTheSnapshotLasts) {
    objects[directory] = make(7, 0, 10);
    put_batches_and_entries(7, 5);
    put_entry(number(7), 7);
    EXPECT_TRUE(resolve("/tree", number(3)).lasts) << "in a batch";
    EXPECT_TRUE(resolve("/tree", number(7)).lasts) << "alone";
    EXPECT_TRUE(resolve("/tree", "absent").lasts);
}

TEST_F(Resolve, WhatHasALifetimeDoesNotLast) {
    objects[directory] = make(7, 0, 10);
    put_batches_and_entries(7, 5);
    objects[batch(0, 7)] = for_now(objects[batch(0, 7)]);
    put_entry(number(7), 7);
    objects[entry(number(7))] = for_now(objects[entry(number(7))]);
    objects[entry(number(8))] = for_now(entries_of({}));
    objects[entry(number(9))] = make_error(EACCES);
    EXPECT_FALSE(resolve("/tree", number(3)).lasts) << "in a batch that was asked for";
    EXPECT_FALSE(resolve("/tree", number(3)).lasts) << "in a batch that is here";
    EXPECT_TRUE(resolve("/tree", number(7)).found);
    EXPECT_FALSE(resolve("/tree", number(7)).lasts) << "alone";
    const auto gone = resolve("/tree", number(8));
    EXPECT_TRUE(gone.found && !*gone.found);
    EXPECT_FALSE(gone.lasts) << "absent, alone";
    EXPECT_FALSE(resolve("/tree", number(9)).lasts) << "an error";

    drop_all();
    objects[directory] = for_now(make(7, 0, 10));
    const auto absent = resolve("/tree", "absent");
    EXPECT_TRUE(absent.found && !*absent.found);
    EXPECT_FALSE(absent.lasts) << "absent from names that have a lifetime";
    drop_all();
    objects[directory] = make_error(EIO);
    EXPECT_FALSE(resolve("/tree", "absent").lasts);
}

// ---- a directory that has changed

// Nobody has the names of version 7 any more.
TEST_F(Resolve, ADirectoryThatHasOtherNamesByNowIsAskedAnew) {
    objects[directory] = make(7, 0, 3 * piece_entries);
    const ObjectPtr now = make(8, 1, 3 * piece_entries);
    objects[piece(0, 7)] = for_now(now);
    objects[batch(0, 8)] = entries_of({file(number(5), 55)});
    EXPECT_FALSE(is_present(number(0))) << "it is gone";
    EXPECT_EQ(inode_of(number(5)), 55U);
    EXPECT_EQ(cache.find(directory)->directory()->version, 8U);
    EXPECT_FALSE(cache.find(directory)->lifetime) << "and so it is from now on";
    EXPECT_EQ(std::count(fetched.begin(), fetched.end(), to_string(directory)), 1);
}

// It changed while its reader listed it, so a name may be missing. That is not the job's truth.
TEST_F(Resolve, OtherNamesThatAreNotProvenAreAskedForAgain) {
    objects[directory] = make(7, 0, 3 * piece_entries);
    Directory missing = *make(8, 1, 3 * piece_entries)->directory();
    missing.is_proven = false;
    objects[piece(0, 7)] = make_object(missing, error_lifetime);
    const std::string name = "missed";
    EXPECT_FALSE(is_present(name));
    EXPECT_FALSE(is_present(number(0))) << "it is gone";
    EXPECT_EQ(cache.find(directory)->lifetime, doubtful_lifetime);
    EXPECT_FALSE(resolve("/tree", number(0)).lasts) << "nor does the kernel keep it";

    Directory whole = *make(9, 0, 3 * piece_entries)->directory();
    objects[directory] = make_object(whole);
    put_entry(number(0), 5);
    time += doubtful_lifetime;
    EXPECT_TRUE(is_present(number(0)));
    EXPECT_TRUE(resolve("/tree", "absent").lasts);
}

TEST_F(Resolve, ADirectoryThatIsSmallByNow) {
    objects[directory] = make(7, 0, 3 * piece_entries);
    objects[piece(0, 7)] = for_now(make(8, 5, 1));
    objects[batch(0, 8)] = entries_of({file(number(5), 55)});
    EXPECT_FALSE(is_present(number(4)));
    EXPECT_EQ(inode_of(number(5)), 55U);
    EXPECT_TRUE(cache.find(directory)->directory()->has_all_names());
}

// The last word is the entry's own: a name is never called absent because its piece is not available.
TEST_F(Resolve, WithoutAPieceTheEntryIsAsked) {
    const std::string name = number(5);
    put_entry(name, 55);
    objects[directory] = make(7, 0, 3 * piece_entries);
    objects[piece(0, 7)] = make_error(ESTALE);
    EXPECT_TRUE(is_present(name));
    drop_all();
    objects[piece(0, 7)] = make_object(Listing({file(number(0), 0)}, Listing::Detail::names_only));
    EXPECT_TRUE(is_present(name)) << "a piece that is too short";
    drop_all();
    objects[piece(0, 7)] = objects[piece(1, 7)];
    EXPECT_TRUE(is_present(name)) << "another piece";
    EXPECT_FALSE(resolve("/tree", number(6)).found) << "the entry's own error";
}

TEST_F(Resolve, TwoVersionsThatReplaceEachOtherEnd) {
    const std::string name = number(5);
    put_entry(name, 55);
    const ObjectPtr seven = make(7, 0, 3 * piece_entries);
    const ObjectPtr eight = make(8, 0, 3 * piece_entries - 1);
    objects[directory] = seven;
    objects[piece(0, 7)] = for_now(eight);
    objects[piece(0, 8)] = for_now(seven);
    EXPECT_TRUE(is_present(name));
}

// ---- where the names are not available

TEST_F(Resolve, ADirectoryThatMayOnlyBeSearched) {
    put_entry("a", 5);
    objects[entry("b")] = entries_of({});
    for (const int error : {EACCES, EINVAL}) {
        objects[directory] = make_error(error);
        drop_all();
        EXPECT_EQ(inode_of("a"), 5U);
        EXPECT_FALSE(is_present("b"));
    }
}

TEST_F(Resolve, OutsideTheTreesOnlyTheEntryIsRead) {
    objects[{.kind = ObjectKind::entry, .path = "/other/a"}] = entries_of({file("a", 5)});
    EXPECT_EQ((*resolve("/other", "a").found)->attributes.inode, 5U);
    EXPECT_EQ(fetched, std::vector<std::string>{"entry /other/a#0"});
}

TEST_F(Resolve, ErrorsOfTheDirectoryPassThrough) {
    objects[directory] = make_error(ESTALE);
    const auto result = resolve("/tree", "a").found;
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().value(), ESTALE);
}

}  // namespace
}  // namespace copper
