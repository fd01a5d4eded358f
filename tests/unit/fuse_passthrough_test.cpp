#include "fuse/passthrough.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "cache/codec.hpp"
#include "tests/support/drop.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

constexpr InodeId inode = 7;
constexpr std::uint64_t size = 2 * extent_bytes + 10;

// A cache that holds one file, and a kernel that counts.
class FusePassthrough : public testing::Test {
  protected:
    static Attributes attributes_of(std::uint32_t second) {
        return {.inode = 3, .size = size, .mode = 0100644, .changed = {.seconds = second}};
    }
    static ObjectKey key_of(const Attributes& attributes, std::uint32_t index) {
        return {.kind = ObjectKind::extent,
                .path = "/t/file",
                .index = index,
                .version = hash_of(version_of(attributes))};
    }
    void deliver(const Attributes& attributes, std::uint32_t extents) {
        for (std::uint32_t index = 0; index < extents; ++index) {
            const std::string text(index < 2 ? extent_bytes : 10, static_cast<char>('a' + index));
            cache.deliver(key_of(attributes, index),
                          make_object(Extent{attributes, copy_to_blob(std::as_bytes(std::span(text)))}));
        }
    }
    template <typename F>
    static bool wait_until(F is_so) {
        const auto deadline = std::chrono::steady_clock::now() + 60s;
        while (!is_so() && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(1ms);
        }
        return is_so();
    }
    bool is_collected() {
        const auto backing = passthrough->open(inode, version_of(now));
        passthrough->close(inode);
        return backing != 0;
    }
    bool collect() {
        passthrough->collect(inode, key_of(now, 0), now);
        return wait_until([&] { return is_collected(); });
    }

    const Attributes now = attributes_of(1);
    Cache cache{{.budget_bytes = 16 << 20}, [](const ObjectKey&, FetchFor) {}};
    std::set<BackingId> ids;
    BackingId last = 0;
    std::unique_ptr<Passthrough> passthrough =
        Passthrough::start(cache, UniqueFd(::open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC)),
                           {.add = [this](int) { return *ids.insert(++last).first; },
                            .remove = [this](BackingId id) { EXPECT_EQ(ids.erase(id), 1U); }});
};

TEST_F(FusePassthrough, AKernelThatRefusesEndsIt) {
    const auto refuse = [](int) { return 0; };
    EXPECT_EQ(Passthrough::start(cache, UniqueFd(::open("/tmp", O_PATH | O_DIRECTORY)), {refuse, {}}),
              nullptr);
    EXPECT_EQ(Passthrough::start(cache, UniqueFd(), {refuse, {}}), nullptr);
}

TEST_F(FusePassthrough, MovesTheCachedBytes) {
    deliver(now, 3);
    const auto bytes = cache.statistics().bytes;
    const std::weak_ptr<const Object> before = cache.find(key_of(now, 1));
    EXPECT_EQ(passthrough->open(inode, version_of(now)), 0);
    EXPECT_EQ(passthrough->close(inode), Passthrough::Next::collect);
    ASSERT_TRUE(collect());
    EXPECT_TRUE(before.expired());
    EXPECT_EQ(cache.statistics().bytes, bytes);
    const auto moved = cache.find(key_of(now, 2));
    EXPECT_EQ(moved->extent()->blob.span()[9], std::byte{'c'});
    EXPECT_EQ(moved->extent()->blob.data.get() - cache.find(key_of(now, 0))->extent()->blob.data.get(),
              2 * extent_bytes);
    EXPECT_TRUE(ids.empty());
}

TEST_F(FusePassthrough, ZerosAreAHoleOfTheLocalFile) {
    deliver(now, 3);
    cache.deliver(key_of(now, 1),
                  make_object(Extent{
                      .attributes = now, .blob = {}, .coding = Coding::zeros, .plain_bytes = extent_bytes}));
    passthrough->open(inode, version_of(now));
    passthrough->close(inode);
    ASSERT_TRUE(collect());
    EXPECT_EQ(cache.find(key_of(now, 1))->extent()->coding, Coding::zeros);
    const std::byte* const first = cache.find(key_of(now, 0))->extent()->blob.data.get();
    EXPECT_EQ(first[0], std::byte{'a'});
    EXPECT_TRUE(are_zeros({first + extent_bytes, extent_bytes}));
    EXPECT_EQ(first[2 * extent_bytes], std::byte{'c'});
}

TEST_F(FusePassthrough, WaitsForAllExtents) {
    deliver(now, 2);
    passthrough->open(inode, version_of(now));
    passthrough->close(inode);
    passthrough->collect(inode, key_of(now, 0), now);
    deliver(attributes_of(2), 3);
    ASSERT_TRUE((deliver(now, 3), collect()));
}

TEST_F(FusePassthrough, OpeningsAtATimeAreAlike) {
    deliver(now, 3);
    const auto before = cache.find(key_of(now, 2));
    passthrough->open(inode, version_of(now));
    passthrough->collect(inode, key_of(now, 0), now);
    wait_until([&] { return cache.find(key_of(now, 2)) != before; });
    EXPECT_EQ(passthrough->open(inode, version_of(now)), 0);
    passthrough->close(inode);
    passthrough->close(inode);
    ASSERT_TRUE(collect());
    const auto first = passthrough->open(inode, version_of(now));
    EXPECT_EQ(passthrough->open(inode, version_of(now)), first);
    EXPECT_EQ(passthrough->open(inode, version_of(attributes_of(2))), std::nullopt);
    EXPECT_EQ(ids.size(), 1U);
    passthrough->close(inode);
    EXPECT_EQ(ids.size(), 1U);
    passthrough->close(inode);
    EXPECT_TRUE(ids.empty());
}

TEST_F(FusePassthrough, EndsWithTheCachedBytes) {
    deliver(now, 3);
    passthrough->open(inode, version_of(now));
    passthrough->close(inode);
    ASSERT_TRUE(collect());
    EXPECT_NE(passthrough->open(inode, version_of(now)), 0);
    for (const std::uint32_t index : {0U, 1U, 2U}) {
        test::drop(cache, key_of(now, index));
    }
    EXPECT_NE(passthrough->open(inode, version_of(now)), 0);
    passthrough->close(inode);
    passthrough->close(inode);
    EXPECT_TRUE(ids.empty());
    // The thread that collected the bytes may hold them a moment longer.
    EXPECT_TRUE(wait_until([&] { return !is_collected(); }));
    EXPECT_EQ(passthrough->open(inode, version_of(now)), 0);
    EXPECT_EQ(passthrough->close(inode), Passthrough::Next::collect);
    passthrough->forget(inode);
}

}  // namespace
}  // namespace copper
