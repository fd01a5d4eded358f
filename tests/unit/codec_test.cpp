#include "cache/codec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/checksum.hpp"

namespace copper {
namespace {

using Bytes = std::vector<std::byte>;

Bytes compressible(std::size_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::byte>(i / 100 * 7 + i % 5);
    }
    return bytes;
}

Bytes random_bytes(std::size_t size, std::mt19937_64& random) {
    Bytes bytes(size);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    return bytes;
}

Extent extent_of(Blob coded, std::size_t plain_bytes) {
    return {.attributes = {}, .blob = std::move(coded), .coding = Coding::lz4, .plain_bytes = plain_bytes};
}

std::optional<PlainBytes> read(const Extent& extent, std::size_t offset, std::size_t size) {
    static const auto memory = ExtentMemory::make();
    return read_plain(extent, offset, size, *memory);
}

void expect_reads(const Extent& extent, const Bytes& plain, std::size_t offset, std::size_t size) {
    const auto got = read(extent, offset, size);
    ASSERT_TRUE(got) << offset << '+' << size;
    const std::size_t begin = std::min(offset, plain.size());
    const std::size_t expected = std::min(size, plain.size() - begin);
    ASSERT_EQ(got->bytes.size(), expected) << offset << '+' << size;
    EXPECT_TRUE(
        std::equal(got->bytes.begin(), got->bytes.end(), plain.begin() + static_cast<std::ptrdiff_t>(begin)))
        << offset << '+' << size;
}

TEST(Codec, ReadsEveryRangeOfEverySize) {
    constexpr std::size_t block = coded_block_bytes;
    for (const std::size_t size :
         {std::size_t{1000}, block - 1, block, block + 1, 3 * block, std::size_t{extent_bytes}}) {
        const Bytes plain = compressible(size);
        const auto coded = lz4_coded(plain);
        ASSERT_TRUE(coded) << size;
        EXPECT_LE(coded->size, size - size / 16);
        EXPECT_EQ(coded->checksum, checksum_of(coded->span()));
        const Extent extent = extent_of(*coded, size);
        EXPECT_TRUE(is_sound(extent));
        for (const std::size_t offset :
             {std::size_t{0}, std::size_t{1}, block - 1, block, 2 * block + 5, size}) {
            for (const std::size_t length :
                 {std::size_t{0}, std::size_t{1}, std::size_t{4096}, 2 * block, SIZE_MAX}) {
                expect_reads(extent, plain, offset, length);
            }
        }
    }
}

TEST(Codec, LeavesAloneWhatDoesNotShrink) {
    std::mt19937_64 random(1);
    EXPECT_FALSE(lz4_coded({}));
    EXPECT_FALSE(lz4_coded(compressible(1)));
    EXPECT_FALSE(lz4_coded(random_bytes(1000, random)));
    EXPECT_FALSE(lz4_coded(random_bytes(extent_bytes, random)));
}

TEST(Codec, MixesBlocksThatShrinkWithThoseThatDoNot) {
    std::mt19937_64 random(2);
    Bytes plain = compressible(extent_bytes);
    const Bytes noise = random_bytes(5 * coded_block_bytes, random);
    std::copy(noise.begin(), noise.end(), plain.begin() + coded_block_bytes);
    const auto coded = lz4_coded(plain);
    ASSERT_TRUE(coded);
    expect_reads(extent_of(*coded, plain.size()), plain, 0, plain.size());
    expect_reads(extent_of(*coded, plain.size()), plain, coded_block_bytes - 10, 2 * coded_block_bytes);
}

TEST(Codec, PlainExtentsAreNotCopied) {
    const Extent extent{.attributes = {}, .blob = copy_to_blob(compressible(100))};
    EXPECT_TRUE(is_sound(extent));
    EXPECT_EQ(read(extent, 10, 20)->bytes.data(), extent.blob.data.get() + 10);
    EXPECT_EQ(read(extent, 90, 20)->bytes.size(), 10U);
}

TEST(Codec, ZerosTakeNoBytes) {
    const Extent extent{.attributes = {}, .blob = {}, .coding = Coding::zeros, .plain_bytes = extent_bytes};
    EXPECT_TRUE(is_sound(extent));
    expect_reads(extent, Bytes(extent_bytes), 0, extent_bytes);
    expect_reads(extent, Bytes(extent_bytes), extent_bytes - 5, 100);
    EXPECT_FALSE(
        is_sound({.attributes = {}, .blob = {}, .coding = Coding::zeros, .plain_bytes = extent_bytes + 1}));
    EXPECT_FALSE(is_sound(
        {.attributes = {}, .blob = copy_to_blob(Bytes(10)), .coding = Coding::zeros, .plain_bytes = 10}));
    for (const std::size_t size : {1U, 2U, 100U}) {
        Bytes bytes(size);
        EXPECT_TRUE(are_zeros(bytes));
        bytes.back() = std::byte{1};
        EXPECT_FALSE(are_zeros(bytes));
    }
    EXPECT_FALSE(are_zeros({}));
}

TEST(Codec, SizesThatContradictEachOtherAreNotSound) {
    const std::size_t size = 3 * coded_block_bytes;
    const Blob coded = *lz4_coded(compressible(size));
    for (const std::size_t claimed : {std::size_t{0}, std::size_t{1}, coded.size, 2 * coded_block_bytes,
                                      4 * coded_block_bytes, std::size_t{extent_bytes + 1}, SIZE_MAX}) {
        EXPECT_FALSE(is_sound(extent_of(coded, claimed))) << claimed;
        EXPECT_FALSE(read(extent_of(coded, claimed), 0, 1)) << claimed;
    }
    for (std::size_t cut = 0; cut < coded.size; ++cut) {
        ASSERT_FALSE(is_sound(extent_of({coded.data, cut, 0}, size))) << cut;
    }
    for (std::size_t entry = 0; entry < 3; ++entry) {
        for (const std::uint32_t wrong : {0U, 1U, 65537U, 0xffffffffU}) {
            Bytes bytes(coded.span().begin(), coded.span().end());
            std::memcpy(bytes.data() + entry * sizeof(wrong), &wrong, sizeof(wrong));
            EXPECT_FALSE(is_sound(extent_of(copy_to_blob(bytes), size))) << entry << ": " << wrong;
        }
    }
    EXPECT_FALSE(is_sound({.attributes = {}, .blob = coded, .plain_bytes = size}));
}

// What LZ4 itself cannot tell from right bytes is for the checksum; here it must only keep to its bounds.
TEST(Codec, DamagedBlocksGiveNothingOrTheRightLength) {
    const std::uint64_t seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::size_t size = 2 * coded_block_bytes + 777;
    const Blob coded = *lz4_coded(compressible(size));
    std::size_t refused = 0;
    for (int round = 0; round < 5000; ++round) {
        Bytes bytes(coded.span().begin(), coded.span().end());
        for (std::uint64_t damages = 1 + random() % 8; damages > 0; --damages) {
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        }
        const auto got = read(extent_of(copy_to_blob(bytes), size), 0, size);
        refused += got ? 0 : 1;
        ASSERT_TRUE(!got || got->bytes.size() == size);
    }
    EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace copper
