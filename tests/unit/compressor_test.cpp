#include "cache/compressor.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cache/codec.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

const ObjectKey key{.kind = ObjectKind::extent, .path = "/t/file", .index = 3, .version = 7};

ObjectPtr zeros(std::size_t size) {
    return make_object(Extent{.attributes = {}, .blob = copy_to_blob(std::vector<std::byte>(size))}, 5ms);
}

ObjectPtr noise() {
    std::vector<std::byte> bytes(1000);
    std::uint32_t state = 1;
    for (std::byte& b : bytes) {
        state = state * 1664525 + 1013904223;
        b = static_cast<std::byte>(state >> 24U);
    }
    return make_object(Extent{.attributes = {}, .blob = copy_to_blob(bytes)});
}

TEST(Rate, IsOfLate) {
    Rate rate;
    EXPECT_EQ(rate.bytes_per_second(), 0);
    rate.add(1000, 1s);
    EXPECT_EQ(rate.bytes_per_second(), 1000);
    for (int i = 0; i < 100; ++i) {
        rate.add(100, 1ms);
    }
    EXPECT_NEAR(rate.bytes_per_second(), 100e3, 1e3);
}

// 8 MiB every 67 ms, which the sender is told of within microseconds, as by TCP at 1 Gbit/s.
TEST(LinkRate, IsNotThatOfABunch) {
    LinkRate rate;
    for (int bunch = 0; bunch < 20; ++bunch) {
        rate.add(1U << 20, 67ms);
        for (int i = 0; i < 7; ++i) {
            rate.add(1U << 20, 10us);
        }
        EXPECT_LT(rate.bytes_per_second(), 150e6);
    }
    EXPECT_NEAR(rate.bytes_per_second(), 125e6, 10e6);
}

TEST(LinkRate, IsTheBestOfLate) {
    LinkRate rate;
    rate.add(1U << 20, 49ms);
    EXPECT_EQ(rate.bytes_per_second(), 0);
    rate.add(1U << 20, 1ms);
    EXPECT_NEAR(rate.bytes_per_second(), 42e6, 1e6);
    rate.add(LinkRate::span_bytes, 10ms);
    EXPECT_NEAR(rate.bytes_per_second(), 6.7e9, 0.1e9);
    rate.add(1U << 20, 1s);
    EXPECT_NEAR(rate.bytes_per_second(), 6.0e9, 0.1e9) << "the receiver may have been busy";
    for (int i = 0; i < 100; ++i) {
        rate.add(1U << 20, 1s);
    }
    EXPECT_NEAR(rate.bytes_per_second(), 1e6, 0.1e6);
}

// 1 MB of which coding saves half: 0.5 ms of a link of 1 GB/s.
TEST(CodingChoice, PaysWhereTheLinkIsSlowerThanTheCodec) {
    const auto pays = [](std::chrono::nanoseconds time, double link) {
        return CodingChoice().pays({.plain_bytes = 1'000'000, .coded_bytes = 500'000, .time = time},
                                   {.bytes_per_second = link});
    };
    EXPECT_TRUE(pays(499us, 1e9));
    EXPECT_FALSE(pays(501us, 1e9));
    EXPECT_TRUE(pays(4ms, 1e8));
    EXPECT_FALSE(pays(4ms, 25e9));
    EXPECT_FALSE(pays(1us, 0)) << "the link is not known";
}

TEST(CodingChoice, HasOnlyToKeepUpWithALinkThatIsBusy) {
    const auto pays = [](std::chrono::nanoseconds time, std::size_t under_way) {
        return CodingChoice().pays({.plain_bytes = 1'000'000, .coded_bytes = 900'000, .time = time},
                                   {.bytes_per_second = 1e9, .bytes_under_way = under_way});
    };
    EXPECT_TRUE(pays(999us, extent_bytes));
    EXPECT_FALSE(pays(1001us, 8 * extent_bytes));
    EXPECT_FALSE(pays(999us, extent_bytes - 1));
}

TEST(CodingChoice, AnInterruptedSampleCountsForNoOther) {
    CodingChoice choice;
    for (const auto time : {30ms, 30ms, 30ms}) {
        EXPECT_FALSE(choice.pays({.plain_bytes = 1'000'000, .coded_bytes = 500'000, .time = time},
                                 {.bytes_per_second = 1e8}));
        EXPECT_TRUE(choice.pays({.plain_bytes = 1'000'000, .coded_bytes = 500'000, .time = 2ms},
                                {.bytes_per_second = 1e8}));
    }
}

TEST(CodingChoice, TheSpeedIsThatOfAllSamplesTheSavingThatOfThisOne) {
    CodingChoice choice;
    const auto pays = [&](std::size_t coded, std::chrono::nanoseconds time) {
        return choice.pays({.plain_bytes = 1000, .coded_bytes = coded, .time = time},
                           {.bytes_per_second = 1e9});
    };
    for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(pays(500, 100ns));
    }
    EXPECT_TRUE(pays(500, 1us)) << "one slow sample among fast ones";
    EXPECT_FALSE(pays(930, 100ns)) << "saves 70 ns";
    EXPECT_FALSE(choice.pays({.plain_bytes = 1000, .coded_bytes = std::nullopt}, {.bytes_per_second = 1}));
}

TEST(CodingChoice, RefusesAFileByPathAndVersion) {
    CodingChoice choice;
    EXPECT_FALSE(choice.is_refused(key));
    choice.refuse(key);
    ObjectKey other = key;
    other.index = 9;
    EXPECT_TRUE(choice.is_refused(other));
    other.version = 8;
    EXPECT_FALSE(choice.is_refused(other));
    other = key;
    other.path = "/t/other";
    EXPECT_FALSE(choice.is_refused(other));
}

TEST(Compressor, CodesByWhatItIsTold) {
    const auto coding = [](Compression compression, double link) {
        const ObjectPtr object =
            Compressor(compression).compress(key, zeros(extent_bytes), {.bytes_per_second = link});
        EXPECT_EQ(object->lifetime, 5ms);
        EXPECT_TRUE(is_sound(*object->extent()));
        EXPECT_EQ(object->extent()->plain_bytes, extent_bytes);
        return object->extent()->coding;
    };
    EXPECT_EQ(coding(Compression::off, 1), Coding::plain);
    EXPECT_EQ(coding(Compression::lz4, 0), Coding::lz4);
    EXPECT_EQ(coding(Compression::automatic, 0), Coding::plain);
    EXPECT_EQ(coding(Compression::automatic, 1), Coding::lz4);
    EXPECT_EQ(coding(Compression::automatic, 1e18), Coding::plain);
}

TEST(Compressor, LeavesAloneWhatDoesNotShrinkOrIsNoExtent) {
    for (const Compression compression : {Compression::lz4, Compression::automatic}) {
        Compressor compressor(compression);
        for (const ObjectPtr& object : {noise(), zeros(0), make_error(EIO)}) {
            EXPECT_EQ(compressor.compress(key, object, {.bytes_per_second = 1}), object);
        }
    }
    Compressor compressor(Compression::automatic);
    compressor.compress(key, noise(), {.bytes_per_second = 1});
    const ObjectPtr next = zeros(1000);
    EXPECT_EQ(compressor.compress(key, next, {.bytes_per_second = 1}), next) << "tried again";
}

}  // namespace
}  // namespace copper
