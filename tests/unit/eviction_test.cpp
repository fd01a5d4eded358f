#include "cache/eviction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "cache/cache.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;

ObjectKey listing_key(int number) {
    return {.kind = ObjectKind::directory, .path = "/" + std::to_string(1000000 + number)};
}

ObjectKey extent_key(int number, std::uint64_t version = 0) {
    return {.kind = ObjectKind::extent, .path = "/" + std::to_string(1000000 + number), .version = version};
}

// Tells which key it is of.
ObjectPtr object_of(const ObjectKey& key, std::optional<milliseconds> lifetime = std::nullopt) {
    return make_object(
        Listing({{.name = "key", .target = to_string(key), .attributes = {}}}, Listing::Detail::attributes),
        lifetime);
}

bool is_of(const ObjectPtr& object, const ObjectKey& key) {
    return object->listing()->at(0).target == to_string(key);
}

// What one object takes of the budget.
std::uint64_t object_bytes(std::optional<milliseconds> lifetime = std::nullopt) {
    Cache cache({.budget_bytes = 1U << 20}, [](const ObjectKey&, FetchFor) {});
    cache.deliver(extent_key(0), object_of(extent_key(0), lifetime));
    return cache.statistics().bytes;
}

// A cache for 100 objects, whose time stands still until told.
struct Fixture {
    static constexpr int room = 100;

    void deliver(const ObjectKey& key, Copy copy = Copy::of_another) {
        cache.deliver(key, object_of(key), copy);
    }
    // Used often enough to move to the main queue.
    void deliver_used(const ObjectKey& key) {
        deliver(key);
        EXPECT_TRUE(has(key));
        EXPECT_TRUE(has(key));
    }
    // Other objects, which nobody uses.
    void scan(int count) {
        for (int i = 0; i < count; ++i) {
            deliver(extent_key(next_scanned++));
        }
    }
    void get(const ObjectKey& key, int times) {
        for (int i = 0; i < times; ++i) {
            cache.get(key, [&](const ObjectPtr& object) { EXPECT_TRUE(is_of(object, key)); });
        }
    }
    bool has(const ObjectKey& key) {
        const ObjectPtr object = cache.find(key);
        return object != nullptr && is_of(object, key);
    }

    TimePoint now;
    int next_scanned = 100000;
    Cache cache{{.budget_bytes = room * object_bytes(), .clock = [this] { return now; }},
                [](const ObjectKey&, FetchFor) {}};
};

TEST(Eviction, WhatIsNewGetsRoom) {
    Fixture f;
    f.scan(10 * Fixture::room);
    EXPECT_TRUE(f.has(extent_key(f.next_scanned - 1)));
    EXPECT_FALSE(f.has(extent_key(f.next_scanned - 10 * Fixture::room)));
    EXPECT_GT(f.cache.statistics().objects, Fixture::room * 9 / 10);
    EXPECT_EQ(f.cache.statistics().objects + f.cache.statistics().evictions, 10 * Fixture::room);
}

TEST(Eviction, AScanDoesNotPushOutWhatIsUsed) {
    Fixture f;
    constexpr int hot = Fixture::room / 2;
    for (int i = 0; i < hot; ++i) {
        f.deliver(listing_key(i));
        f.get(listing_key(i), 2);
    }
    f.scan(50 * Fixture::room);
    for (int i = 0; i < hot; ++i) {
        EXPECT_TRUE(f.has(listing_key(i))) << i;
    }
}

TEST(Eviction, WhatTheKernelGotOfAFileIsNoUseButWhatANodeGotIs) {
    Fixture f;
    f.deliver(extent_key(1));
    f.deliver(extent_key(2));
    f.deliver(listing_key(3));
    f.get(extent_key(1), 8);
    f.get(listing_key(3), 2);
    EXPECT_TRUE(f.has(extent_key(2)));
    EXPECT_TRUE(f.has(extent_key(2)));
    f.scan(10 * Fixture::room);
    EXPECT_FALSE(f.has(extent_key(1)));
    EXPECT_TRUE(f.has(extent_key(2)));
    EXPECT_TRUE(f.has(listing_key(3)));
}

TEST(Eviction, UsesAreWorthOneRoundOfTheMainQueue) {
    const auto is_there_after = [](int uses, int deliveries) {
        Fixture f;
        f.deliver_used(extent_key(0));
        while (f.cache.statistics().evictions == 0) {
            f.scan(1);
        }
        for (int use = 0; use < uses; ++use) {  // now it is in the main queue
            EXPECT_TRUE(f.has(extent_key(0)));
        }
        for (int i = 1; i <= deliveries; ++i) {
            f.deliver_used(extent_key(i));
        }
        return f.has(extent_key(0));
    };
    for (const int uses : {0, 1, 3}) {  // those that brought it there are worth as much
        EXPECT_TRUE(is_there_after(uses, 5 * Fixture::room / 4)) << uses;
        EXPECT_FALSE(is_there_after(uses, 3 * Fixture::room / 2)) << uses;
    }
}

TEST(Eviction, EvenOfWhatIsUsedNothingIsKeptBeyondTheBudget) {
    Fixture f;
    for (int i = 0; i < 3 * Fixture::room; ++i) {
        f.deliver_used(extent_key(i));
        EXPECT_LE(f.cache.statistics().bytes, f.cache.statistics().budget_bytes);
    }
    EXPECT_FALSE(f.has(extent_key(0)));
    EXPECT_TRUE(f.has(extent_key(3 * Fixture::room - 1)));
}

// Reads data that is larger than the cache, from object `first` on, and does `each` after each. Returns how
// many objects had to be delivered.
constexpr int working_set = Fixture::room * 5 / 4;
int misses_of_pass(Fixture& f, int first, Copy copy, const std::function<void(const ObjectKey&)>& each) {
    int misses = 0;
    for (int i = first; i < first + working_set; ++i) {
        if (!f.has(extent_key(i))) {
            ++misses;
            f.deliver(extent_key(i), copy);
        }
        each(extent_key(i));
    }
    return misses;
}

// As when nodes read a file one after the other. FIFO and LRU keep nothing that is used again.
TEST(Eviction, OfDataThatIsReadAgainAndAgainAPartStays) {
    Fixture f;
    const auto misses_from = [&f](int first) {
        return misses_of_pass(f, first, Copy::of_another, [&f](const ObjectKey& key) {
            for (int asker = 0; asker < 3; ++asker) {
                EXPECT_TRUE(f.has(key));
            }
        });
    };
    EXPECT_EQ(misses_from(0), working_set);
    for (int pass = 0; pass < 10; ++pass) {
        EXPECT_LE(misses_from(0), working_set - Fixture::room * 3 / 4) << pass;
    }
    // Other data takes its place soon.
    int misses = 0;
    for (int pass = 0; pass < 4; ++pass) {
        misses = misses_from(working_set);
    }
    EXPECT_LE(misses, working_set - Fixture::room * 3 / 4);
}

// As when nodes read a file one after the other, each through the cache of its readers.
TEST(Eviction, AReaderKeepsMostOfWhatItHasReadAlthoughItIsUsedOnceAPass) {
    Fixture f;
    const auto misses_from = [&f](int first) {
        // What this node has from other readers.
        return misses_of_pass(f, first, Copy::of_reader, [&f](const ObjectKey&) { f.scan(3); });
    };
    misses_from(0);
    for (int pass = 0; pass < 10; ++pass) {
        EXPECT_LE(misses_from(0), working_set - Fixture::room * 4 / 5) << pass;
    }
    int misses = 0;
    for (int pass = 0; pass < 4; ++pass) {
        misses = misses_from(working_set);
    }
    EXPECT_LE(misses, working_set - Fixture::room * 4 / 5) << "other data takes its place";
}

// The reader has it still.
TEST(Eviction, WhatComesBackTakesNoPlaceOfAReadersCopy) {
    const auto kept_by_a_reader_after = [](int rounds) {
        Fixture f;
        for (int i = 0; i < Fixture::room; ++i) {
            f.deliver(extent_key(i), Copy::of_reader);
        }
        for (int i = 0; i < rounds * Fixture::room / 4; ++i) {
            f.deliver(extent_key(Fixture::room + i % (Fixture::room / 4)));
        }
        int kept = 0;
        for (int i = 0; i < Fixture::room; ++i) {
            kept += f.has(extent_key(i)) ? 1 : 0;
        }
        return kept;
    };
    EXPECT_GE(kept_by_a_reader_after(1), Fixture::room * 9 / 10);
    EXPECT_EQ(kept_by_a_reader_after(20), kept_by_a_reader_after(1));
}

TEST(Eviction, WhatIsUsedOutlivesWhatAReaderReadsOnce) {
    Fixture f;
    f.deliver_used(listing_key(0));
    for (int i = 0; i < 20 * Fixture::room; ++i) {
        f.deliver(extent_key(i), Copy::of_reader);
        EXPECT_TRUE(i % (Fixture::room / 2) != 0 || f.has(listing_key(0))) << i;
    }
    EXPECT_FALSE(f.has(extent_key(0)));
}

TEST(Eviction, WhatComesBackSoonStays) {
    Fixture f;
    f.deliver(extent_key(1));
    while (f.cache.statistics().evictions == 0) {
        f.scan(1);
    }
    ASSERT_FALSE(f.has(extent_key(1)));
    f.deliver(extent_key(1));
    f.deliver(extent_key(2));
    f.scan(10 * Fixture::room);
    EXPECT_TRUE(f.has(extent_key(1)));
    EXPECT_FALSE(f.has(extent_key(2)));
}

TEST(Eviction, WhatHasExpiredLeavesFirst) {
    Fixture f;
    constexpr int lasting = Fixture::room / 2;
    f.scan(lasting);
    const int expiring = static_cast<int>(lasting * object_bytes() / object_bytes(milliseconds(10)));
    for (int i = 0; i < expiring; ++i) {
        f.cache.deliver(listing_key(i), object_of(listing_key(i), milliseconds(10)));
        f.get(listing_key(i), 3);
    }
    ASSERT_EQ(f.cache.statistics().evictions, 0U);
    f.now += milliseconds(10);
    f.scan(lasting);
    EXPECT_EQ(f.cache.statistics().evictions, 0U);
    for (int i = f.next_scanned - 2 * lasting; i < f.next_scanned; ++i) {
        EXPECT_TRUE(f.has(extent_key(i)));
    }
}

TEST(Eviction, WhatIsFoundExpiredTakesNoRoom) {
    Fixture f;
    f.cache.deliver(extent_key(1), object_of(extent_key(1), milliseconds(10)));
    f.now += milliseconds(10);
    f.cache.get(extent_key(1), [](const ObjectPtr&) {});
    EXPECT_EQ(f.cache.statistics().bytes, 0U);
}

TEST(Eviction, WhatWasTakenOutBeforeItWasAdmittedStaysOut) {
    Eviction eviction(1000);
    const auto kept = std::make_shared<Kept>(extent_key(1), object_of(extent_key(1)), 10, std::nullopt);
    eviction.remove(kept);
    EXPECT_TRUE(eviction.admit(kept, TimePoint()).empty());
    EXPECT_EQ(eviction.usage().bytes, 0U);
}

TEST(Eviction, TheOlderVersionOfAFileLeavesAsItIsNotUsedAnyMore) {
    Fixture f;
    const ObjectKey older = extent_key(1, 1), newer = extent_key(1, 2);
    f.deliver(older);
    for (int use = 0; use < 10; ++use) {
        EXPECT_TRUE(f.has(older));
    }
    f.deliver(newer);
    for (int i = 100; i < 100 + 10 * Fixture::room; ++i) {
        f.deliver(extent_key(i));
        EXPECT_TRUE(f.has(extent_key(i)));
        EXPECT_TRUE(f.has(extent_key(i)));
        EXPECT_TRUE(f.has(newer));
    }
    EXPECT_FALSE(f.has(older));
}

TEST(Eviction, WhatIsLargerThanTheBudgetIsDeliveredAndPushesOutNothing) {
    Fixture f;
    f.scan(Fixture::room);
    const auto large = make_object(Extent{
        .attributes = {}, .blob = copy_to_blob(std::vector<std::byte>(f.cache.statistics().budget_bytes))});
    ObjectPtr got;
    f.cache.get(extent_key(1), [&](const ObjectPtr& object) { got = object; });
    f.cache.deliver(extent_key(1), large);
    EXPECT_EQ(got, large);
    EXPECT_EQ(f.cache.find(extent_key(1)), nullptr);
    EXPECT_EQ(f.cache.statistics().objects, static_cast<std::uint64_t>(Fixture::room));
    EXPECT_EQ(f.cache.statistics().evictions, 1U);
}

TEST(Eviction, WhoWaitsIsNotForgotten) {
    Fixture f;
    bool woken = false;
    f.cache.get(extent_key(1), [&](const ObjectPtr&) { woken = true; });
    f.scan(10 * Fixture::room);
    f.deliver(extent_key(1));
    EXPECT_TRUE(woken);
}

TEST(Eviction, WhatWasReplacedTakesNoRoom) {
    Fixture f;
    for (int i = 0; i < 10 * Fixture::room; ++i) {
        f.deliver(extent_key(1));
    }
    EXPECT_EQ(f.cache.statistics().objects, 1U);
    EXPECT_EQ(f.cache.statistics().evictions, 0U);
}

// All threads that deliver wait meanwhile.
TEST(Eviction, RoomForALargeObjectIsMadeInShortTimeHoweverMuchWasUsed) {
    static constexpr std::size_t count = 200000, bytes = 300;
    const auto cpu_time_of_admission = [](int uses) {
        Eviction eviction(count * bytes);
        const ObjectPtr object = make_error(ENOENT);
        for (std::size_t i = 0; i < count; ++i) {
            const auto kept =
                std::make_shared<Kept>(listing_key(static_cast<int>(i)), object, bytes, std::nullopt);
            for (int use = 0; use < uses; ++use) {
                kept->use();
            }
            EXPECT_TRUE(eviction.admit(kept, {}).empty());
        }
        const auto large = std::make_shared<Kept>(extent_key(1), object, extent_bytes, std::nullopt);
        const std::clock_t begin = std::clock();
        const auto leaving = eviction.admit(large, {});
        const std::clock_t time = std::clock() - begin;
        EXPECT_EQ(leaving.size(), extent_bytes / bytes + 1);
        EXPECT_EQ(eviction.usage().evictions, leaving.size());
        return time;
    };
    EXPECT_LE(cpu_time_of_admission(3), 8 * cpu_time_of_admission(0) + CLOCKS_PER_SEC / 500);
}

// Threads get, find and deliver at random; each miss is fetched by the thread that misses.
TEST(Eviction, TheBudgetHoldsAndBytesAreRightWhateverThreadsDo) {
    constexpr int threads = 8, rounds = 5000, keys = 500;
    const std::uint64_t budget = Fixture::room * object_bytes();
    std::atomic<int> wrong = 0, above_budget = 0, woken = 0, asked = 0;
    Cache* self = nullptr;
    Cache cache({.budget_bytes = budget},
                [&](const ObjectKey& key, FetchFor) { self->deliver(key, object_of(key)); });
    self = &cache;
    const auto work = [&](unsigned seed) {
        std::mt19937 random(seed);
        for (int i = 0; i < rounds; ++i) {
            const int number = static_cast<int>(random() % keys);
            const auto key = number % 2 == 0 ? listing_key(number) : extent_key(number);
            switch (random() % 7) {
                case 0:
                    cache.deliver(key, object_of(key));
                    break;
                case 1:
                    cache.deliver(key, object_of(key, milliseconds(random() % 2)));
                    break;
                case 2:
                    if (const auto object = cache.find(key)) {
                        wrong += is_of(object, key) ? 0 : 1;
                    }
                    break;
                default:
                    ++asked;
                    cache.get(key, [&, key](const ObjectPtr& object) {
                        ++woken;
                        wrong += is_of(object, key) ? 0 : 1;
                    });
            }
            above_budget += cache.statistics().bytes > budget ? 1 : 0;
        }
    };
    std::vector<std::thread> workers;
    for (unsigned t = 0; t < threads; ++t) {
        workers.emplace_back(work, t);
    }
    for (auto& worker : workers) {
        worker.join();
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(above_budget, 0);
    EXPECT_EQ(woken, asked);

    // Queues and shards agree on what is there.
    std::this_thread::sleep_for(milliseconds(2));
    for (int i = 0; i < 2 * Fixture::room; ++i) {
        cache.deliver(extent_key(keys + i), object_of(extent_key(keys + i)));  // in place of what has expired
    }
    std::uint64_t present = 0;
    for (int number = 0; number < keys + 2 * Fixture::room; ++number) {
        for (const auto& key : {listing_key(number), extent_key(number)}) {
            present += cache.find(key) != nullptr ? 1 : 0;
        }
    }
    EXPECT_EQ(cache.statistics().objects, present);
}

TEST(Eviction, TheFirstOneOfACacheFullOfUsedObjectsLooksAtAPartOfThem) {
    constexpr int count = 10000;
    Eviction eviction(count);
    const auto admit = [&eviction](int number) {
        const auto kept = std::make_shared<Kept>(extent_key(number), nullptr, 1, std::nullopt);
        kept->use();
        kept->use();
        return eviction.admit(kept, {});
    };
    for (int number = 0; number < count; ++number) {
        ASSERT_TRUE(admit(number).empty());
    }
    const auto leaving = admit(count);
    ASSERT_EQ(leaving.size(), 1U);
    EXPECT_EQ(leaving[0]->key, extent_key(4096)) << "those before it have moved to the main queue";
}

// While it shows them, others leave, come, and move from one queue to the other.
TEST(Eviction, ShowsAllThatStay) {
    Eviction eviction(5000);
    std::set<KeptPtr> gone;
    const auto admit = [&](int number) {
        const ObjectKey key = listing_key(number);
        const auto kept = std::make_shared<Kept>(key, object_of(key), 1, std::nullopt);
        const auto leaving = eviction.admit(kept, {});
        gone.insert(leaving.begin(), leaving.end());
        return kept;
    };
    std::mt19937 random(1);
    std::vector<KeptPtr> all;
    for (int number = 0; number < 5000; ++number) {
        all.push_back(admit(number));
        all[random() % all.size()]->use();
        all[random() % all.size()]->use();
    }
    std::set<KeptPtr> shown;
    eviction.for_each([&](const KeptPtr& kept) {
        EXPECT_TRUE(shown.insert(kept).second);
        if (random() % 4 == 0) {
            const KeptPtr& removed = all[random() % all.size()];
            eviction.remove(removed);
            gone.insert(removed);
        }
        admit(static_cast<int>(5000 + shown.size()));
        all[random() % all.size()]->use();
    });
    std::size_t stayed = 0;
    for (const KeptPtr& kept : all) {
        EXPECT_TRUE(shown.contains(kept) || gone.contains(kept)) << to_string(kept->key);
        stayed += gone.contains(kept) ? 0 : 1;
    }
    EXPECT_GT(stayed, 100U);
}

// The last one is alone, and gets another round, when a walk has come to it.
TEST(Eviction, ShowsAnObjectThatStaysLast) {
    Eviction eviction(10000);  // 9000 for the main queue
    const auto admit = [&](int number, std::uint64_t bytes) {
        const ObjectKey key = listing_key(number);
        const auto kept = std::make_shared<Kept>(key, object_of(key), bytes, std::nullopt, Copy::of_reader);
        EXPECT_TRUE(eviction.admit(kept, {}).empty());
        return kept;
    };
    std::vector<KeptPtr> all;
    for (int number = 0; number < 1024; ++number) {  // as many as a walk shows at once
        all.push_back(admit(number, 1));
    }
    all.push_back(admit(1024, 7976));
    std::set<KeptPtr> shown;
    eviction.for_each([&](const KeptPtr& kept) {
        if (shown.empty()) {
            std::for_each(all.begin(), all.end() - 1, [&](const KeptPtr& one) { eviction.remove(one); });
            all.back()->use();
            admit(1025, 1025);
        }
        shown.insert(kept);
    });
    EXPECT_TRUE(shown.contains(all.back()));
}

}  // namespace
}  // namespace copper
