#include "cache/cache.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

namespace copper {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t plenty = std::uint64_t{1} << 30;

ObjectPtr object_of(std::size_t bytes, std::optional<milliseconds> lifetime = std::nullopt) {
    return make_object(Extent{.attributes = {}, .blob = copy_to_blob(std::vector<std::byte>(bytes))},
                       lifetime);
}

ObjectKey key_of(std::string path) {
    return {.kind = ObjectKind::extent, .path = std::move(path)};
}

// A cache whose fetches are noted and whose time stands still until told.
struct Fixture {
    explicit Fixture(std::uint64_t budget = plenty)
        : cache({.budget_bytes = budget, .clock = [this] { return now; }},
                [this](const ObjectKey& key, FetchFor) { fetched.push_back(key); }) {}

    // What get() hands out at once; null if it did not.
    ObjectPtr get(const std::string& path) {
        const auto got = std::make_shared<ObjectPtr>();
        cache.get(key_of(path), [got](const ObjectPtr& object) { *got = object; });
        return *got;
    }

    TimePoint now;
    std::vector<ObjectKey> fetched;
    Cache cache;
};

TEST(Cache, FetchesWhatIsMissingAndKeepsIt) {
    Fixture f;
    EXPECT_EQ(f.get("/a"), nullptr);
    ASSERT_EQ(f.fetched.size(), 1U);
    EXPECT_EQ(f.fetched[0], key_of("/a"));
    const auto object = object_of(10);
    f.cache.deliver(key_of("/a"), object);
    EXPECT_EQ(f.get("/a"), object);
    EXPECT_EQ(f.cache.find(key_of("/a")), object);
    EXPECT_EQ(f.fetched.size(), 1U);
    const auto statistics = f.cache.statistics();
    EXPECT_EQ(statistics.hits, 1U);
    EXPECT_EQ(statistics.misses, 1U);
    EXPECT_EQ(statistics.objects, 1U);
    EXPECT_GE(statistics.bytes, object->bytes());
}

TEST(Cache, DemandThatJoinsAGuessIsFetchedAsDemandOnce) {
    std::vector<FetchFor> fetched;
    Cache cache({.budget_bytes = 1000}, [&](const ObjectKey&, FetchFor why) { fetched.push_back(why); });
    int answers = 0;
    const auto get = [&](const ObjectKey& key, FetchFor why) {
        cache.get(
            key, [&](const ObjectPtr&) { ++answers; }, why);
    };
    for (const FetchFor guess : {FetchFor::guess, FetchFor::everyone}) {
        const ObjectKey key = key_of(guess == FetchFor::guess ? "/a" : "/b");
        for (const FetchFor why : {guess, guess, FetchFor::demand, FetchFor::demand, guess}) {
            get(key, why);
        }
        EXPECT_EQ(fetched, (std::vector{guess, FetchFor::demand}));
        cache.deliver(key, object_of(1));
        fetched.clear();
    }
    EXPECT_EQ(answers, 10);
    get(key_of("/c"), FetchFor::demand);
    get(key_of("/c"), FetchFor::guess);
    EXPECT_EQ(fetched, std::vector{FetchFor::demand}) << "a guess that joins demand is demand";
}

TEST(Cache, FindNeitherFetchesNorCounts) {
    Fixture f;
    EXPECT_EQ(f.cache.find(key_of("/a")), nullptr);
    EXPECT_TRUE(f.fetched.empty());
    EXPECT_EQ(f.cache.statistics().misses, 0U);
}

TEST(Cache, WhatIsPassedOnHasTheLifeThatIsLeft) {
    Fixture f;
    f.cache.deliver(key_of("/a"), object_of(10, milliseconds(100)));
    f.now += milliseconds(70);
    EXPECT_EQ(f.cache.find(key_of("/a"))->lifetime, milliseconds(30));
    f.cache.deliver(key_of("/a"), object_of(10));
    EXPECT_FALSE(f.cache.find(key_of("/a"))->lifetime);
}

TEST(Cache, WhatItHasOrFetchesIsForeseen) {
    Fixture f;
    EXPECT_EQ(f.cache.foresight(key_of("/a")), Foresight::unforeseen);
    f.get("/a");
    EXPECT_EQ(f.cache.foresight(key_of("/a")), Foresight::foreseen) << "in flight";
    f.cache.deliver(key_of("/a"), object_of(10, milliseconds(100)));
    EXPECT_EQ(f.cache.foresight(key_of("/a")), Foresight::foreseen);
    f.now += milliseconds(200);
    EXPECT_EQ(f.cache.foresight(key_of("/a")), Foresight::unforeseen) << "expired";
    EXPECT_EQ(f.cache.foresight(key_of("/b")), Foresight::unforeseen);
    EXPECT_EQ(f.fetched.size(), 1U);
}

TEST(Cache, ManyWaitersShareOneFetch) {
    Fixture f;
    int woken = 0;
    const auto object = object_of(1);
    for (int i = 0; i < 100; ++i) {
        f.cache.get(key_of("/a"), [&](const ObjectPtr& got) { woken += got == object ? 1 : 1000; });
    }
    EXPECT_EQ(f.fetched.size(), 1U);
    EXPECT_EQ(woken, 0);
    f.cache.deliver(key_of("/a"), object);
    EXPECT_EQ(woken, 100);
}

TEST(Cache, KeepsWhatNobodyAskedFor) {
    Fixture f;
    f.cache.deliver(key_of("/pushed"), object_of(1));
    EXPECT_NE(f.get("/pushed"), nullptr);
    EXPECT_TRUE(f.fetched.empty());
}

TEST(Cache, KeysDifferByKindAndIndex) {
    Fixture f;
    f.cache.deliver(key_of("/a"), object_of(1));
    EXPECT_EQ(f.cache.find({.kind = ObjectKind::extent, .path = "/a", .index = 1}), nullptr);
    EXPECT_EQ(f.cache.find({.kind = ObjectKind::entry, .path = "/a"}), nullptr);
}

TEST(Cache, WhatHasALifetimeExpires) {
    Fixture f;
    f.cache.deliver(key_of("/a"), object_of(1, milliseconds(100)));
    f.now += milliseconds(99);
    EXPECT_NE(f.get("/a"), nullptr);
    f.now += milliseconds(1);
    EXPECT_EQ(f.cache.find(key_of("/a")), nullptr);
    EXPECT_EQ(f.get("/a"), nullptr);
    EXPECT_EQ(f.fetched.size(), 1U);
    f.cache.deliver(key_of("/a"), object_of(1));
    f.now += std::chrono::hours(1000);
    EXPECT_NE(f.get("/a"), nullptr) << "a snapshot stays";
}

TEST(Cache, ALifetimeOfZeroServesTheWaitersOnly) {
    Fixture f;
    ObjectPtr got;
    f.cache.get(key_of("/a"), [&](const ObjectPtr& object) { got = object; });
    f.cache.deliver(key_of("/a"), object_of(1, milliseconds(0)));
    EXPECT_NE(got, nullptr);
    EXPECT_EQ(f.get("/a"), nullptr);
    EXPECT_EQ(f.fetched.size(), 2U);
}

TEST(Cache, NeverExceedsItsBudget) {
    constexpr std::uint64_t budget = 10000;
    Fixture f(budget);
    for (int i = 0; i < 100; ++i) {
        int woken = 0;
        const auto key = key_of('/' + std::to_string(i));
        f.cache.get(key, [&](const ObjectPtr&) { ++woken; });
        f.cache.deliver(key, object_of(500));
        EXPECT_EQ(woken, 1) << "an object that is not kept is still delivered";
        EXPECT_LE(f.cache.statistics().bytes, budget);
    }
    EXPECT_GT(f.cache.statistics().objects, 5U);
    EXPECT_GT(f.cache.statistics().evictions, 0U);
}

TEST(Cache, RedeliveryReplacesWithoutLeakingBudget) {
    Fixture f;
    f.cache.deliver(key_of("/a"), object_of(1000));
    const auto once = f.cache.statistics().bytes;
    const auto replacement = object_of(1000);
    f.cache.deliver(key_of("/a"), replacement);
    EXPECT_EQ(f.cache.statistics().bytes, once);
    EXPECT_EQ(f.cache.statistics().objects, 1U);
    EXPECT_EQ(f.cache.find(key_of("/a")), replacement);
}

TEST(Cache, ReplacesOnlyWhatItStillKeeps) {
    Fixture f;
    const auto first = object_of(10);
    const auto second = object_of(10);
    f.cache.replace(key_of("/a"), first, second);
    EXPECT_EQ(f.cache.find(key_of("/a")), nullptr);
    f.cache.deliver(key_of("/a"), first);
    f.cache.replace(key_of("/a"), first, second);
    f.cache.replace(key_of("/a"), first, object_of(10));
    EXPECT_EQ(f.cache.find(key_of("/a")), second);
}

TEST(Cache, AWaiterMayAskAgain) {
    Fixture f;
    bool inner = false;
    f.cache.get(key_of("/a"), [&](const ObjectPtr&) {
        f.cache.get(key_of("/a"), [&](const ObjectPtr&) { inner = true; });
    });
    f.cache.deliver(key_of("/a"), object_of(1));
    EXPECT_TRUE(inner);
}

TEST(Cache, AFetchMayDeliverAtOnce) {
    Cache* self = nullptr;
    Cache cache({.budget_bytes = plenty},
                [&](const ObjectKey& key, FetchFor) { self->deliver(key, object_of(1)); });
    self = &cache;
    bool woken = false;
    cache.get(key_of("/a"), [&](const ObjectPtr&) { woken = true; });
    EXPECT_TRUE(woken);
}

// Threads ask for the same few keys; a fetcher's own thread delivers. Small budget: objects come and go.
TEST(Cache, EveryWaiterOfManyThreadsIsWokenOnce) {
    constexpr int threads = 8;
    constexpr int rounds = 2000;
    constexpr std::uint64_t budget = 20000;
    std::mutex mutex;
    std::vector<ObjectKey> wanted;
    std::atomic<bool> done = false;
    std::atomic<int> woken = 0;
    std::atomic<int> above_budget = 0;
    Cache cache({.budget_bytes = budget}, [&](const ObjectKey& key, FetchFor) {
        const std::lock_guard lock(mutex);
        wanted.push_back(key);
    });
    std::thread fetcher([&] {
        while (!done || woken < threads * rounds) {
            std::vector<ObjectKey> batch;
            {
                const std::lock_guard lock(mutex);
                batch.swap(wanted);
            }
            for (const auto& key : batch) {
                cache.deliver(key, object_of(300));
            }
            above_budget += cache.statistics().bytes > budget ? 1 : 0;
            std::this_thread::yield();
        }
    });
    std::vector<std::thread> askers;
    for (int t = 0; t < threads; ++t) {
        askers.emplace_back([&, t] {
            for (int i = 0; i < rounds; ++i) {
                cache.get(key_of('/' + std::to_string((i * 7 + t) % 50)), [&](const ObjectPtr&) { ++woken; });
            }
        });
    }
    for (auto& asker : askers) {
        asker.join();
    }
    done = true;
    fetcher.join();
    EXPECT_EQ(woken, threads * rounds);
    EXPECT_EQ(above_budget, 0);
}

TEST(Cache, ReadingAheadLeavesRoomForWhatIsInFlight) {
    Fixture f;
    EXPECT_EQ(f.cache.read_ahead_extents(ObjectKind::extent), 16U) << "of one file, however large the budget";
    EXPECT_EQ(Fixture(64 * extent_bytes).cache.read_ahead_extents(ObjectKind::extent), 8U)
        << "an eighth of the budget";
    EXPECT_EQ(Fixture(0).cache.read_ahead_extents(ObjectKind::extent), 1U);
    const auto path = [](int number) { return "/f" + std::to_string(number); };
    for (int number = 0; number < 20; ++number) {
        f.get(path(number));
        f.get(path(number));
    }
    EXPECT_EQ(f.cache.read_ahead_extents(ObjectKind::extent), 12U) << "of 32 in all";
    for (int number = 20; number < 40; ++number) {
        f.get(path(number));
    }
    EXPECT_EQ(f.cache.read_ahead_extents(ObjectKind::extent), 0U);
    for (int number = 0; number < 50; ++number) {  // the last ones were not asked for
        f.cache.deliver(key_of(path(number)), object_of(1));
    }
    EXPECT_EQ(f.cache.read_ahead_extents(ObjectKind::extent), 16U);
}

// Once the main queue is full, what is new leaves as soon as little more has come.
TEST(Cache, ReadsNoFurtherAheadThanAFullCacheKeeps) {
    Fixture f(32 * extent_bytes);
    EXPECT_EQ(f.cache.read_ahead_extents(ObjectKind::extent), 4U);
    for (int number = 0; number < 40; ++number) {
        f.cache.deliver(key_of("/f" + std::to_string(number)), object_of(extent_bytes), Copy::of_reader);
    }
    EXPECT_EQ(f.cache.read_ahead_extents(ObjectKind::extent), 1U);
}

TEST(Cache, ReadsAheadForAllReadersOfAFile) {
    const auto ahead = [](std::uint32_t readers, std::uint64_t budget) {
        return Cache({.budget_bytes = budget, .readers = readers}, nullptr)
            .read_ahead_extents(ObjectKind::extent);
    };
    EXPECT_EQ(ahead(1, plenty), 16U);
    EXPECT_EQ(ahead(4, plenty), 16 * stripe_extents);
    EXPECT_EQ(ahead(7, plenty), 28 * stripe_extents);
    EXPECT_EQ(ahead(16, plenty), 128U) << "an eighth of the budget";
    EXPECT_EQ(ahead(16, 64 * extent_bytes), 8U);
    EXPECT_EQ(
        Cache({.budget_bytes = plenty, .readers = 16}, nullptr).read_ahead_extents(ObjectKind::own_extent),
        16U)
        << "of a file that this node reads for itself";
}

TEST(Cache, AsksAnewAfterARefresh) {
    Fixture fixture;
    const ObjectKey entry{.kind = ObjectKind::entry, .path = "/a/b"};
    const auto ignore = [](const ObjectPtr&) {};
    fixture.cache.get(entry, ignore);
    fixture.cache.deliver(entry, object_of(1));
    EXPECT_TRUE(fixture.cache.refresh({.path = "/a", .id = 5}));
    EXPECT_FALSE(fixture.cache.refresh({.path = "/a", .id = 5}));
    fixture.cache.get(entry, ignore);
    ASSERT_EQ(fixture.fetched.size(), 2U);
    EXPECT_EQ(fixture.fetched[1], fixture.cache.current(entry));
    EXPECT_NE(fixture.fetched[1], entry);
    fixture.cache.deliver(fixture.fetched[1], object_of(2));
    EXPECT_EQ(fixture.cache.statistics().objects, 2U);
    fixture.cache.drop_outdated();
    EXPECT_EQ(fixture.cache.statistics().objects, 1U);
    EXPECT_NE(fixture.cache.find(fixture.fetched[1]), nullptr);
}

// By now, the file may be of the version that was asked for.
TEST(Cache, KeepsBytesOfAnotherVersionUntilARefresh) {
    Fixture fixture;
    const auto object = object_of(1);
    const std::uint64_t version = hash_of(version_of(object->extent()->attributes));
    const ObjectKey right{.kind = ObjectKind::extent, .path = "/a/b", .version = version};
    const ObjectKey other{.kind = ObjectKind::extent, .path = "/a/b", .version = version + 1};
    fixture.cache.deliver(right, object);
    fixture.cache.deliver(other, object);
    fixture.cache.drop_outdated();
    EXPECT_NE(fixture.cache.find(other), nullptr);
    fixture.cache.refresh({.path = "/a", .id = 5});
    fixture.cache.drop_outdated();
    EXPECT_NE(fixture.cache.find(right), nullptr);
    EXPECT_EQ(fixture.cache.find(other), nullptr);
    fixture.cache.deliver(other, object);  // read before, perhaps
    fixture.now += doubtful_lifetime;
    EXPECT_EQ(fixture.cache.find(other), nullptr);
    EXPECT_NE(fixture.cache.find(right), nullptr);
}

}  // namespace
}  // namespace copper
