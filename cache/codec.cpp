#include "cache/codec.hpp"

#include <lz4.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checksum.hpp"

namespace copper {
namespace {

using Bytes = std::span<const std::byte>;
using Size = std::uint32_t;  // of a coded block, in the table

constexpr std::size_t saved_share_min = 16;  // a 16th
constexpr std::size_t blocks_max = extent_bytes / coded_block_bytes;

// Nobody writes to it, so all its pages are the kernel's one page of zeros.
std::array<std::byte, extent_bytes> zeros;

std::size_t blocks_of(std::size_t plain_bytes) {
    return (plain_bytes + coded_block_bytes - 1) / coded_block_bytes;
}

std::size_t bytes_in_block(std::size_t plain_bytes, std::size_t block) {
    return std::min(coded_block_bytes, plain_bytes - block * coded_block_bytes);
}

// Where each coded block starts, and where the last one ends; nothing if the table makes no sense.
std::optional<std::array<std::size_t, blocks_max + 1>> block_starts(const Extent& extent) {
    const Bytes coded = extent.blob.span();
    const std::size_t blocks = blocks_of(extent.plain_bytes);
    if (extent.plain_bytes > extent_bytes || coded.size() >= extent.plain_bytes ||
        coded.size() < blocks * sizeof(Size)) {
        return std::nullopt;
    }
    std::array<std::size_t, blocks_max + 1> starts = {blocks * sizeof(Size)};
    for (std::size_t block = 0; block < blocks; ++block) {
        Size size = 0;
        std::memcpy(&size, coded.data() + block * sizeof(Size), sizeof(Size));
        if (size == 0 || size > bytes_in_block(extent.plain_bytes, block)) {
            return std::nullopt;
        }
        starts[block + 1] = starts[block] + size;
    }
    return starts[blocks] == coded.size() ? std::optional(starts) : std::nullopt;
}

// False if the block is damaged. REQUIRES: `coded` is not larger than `plain`.
bool decode_block(Bytes coded, std::span<std::byte> plain) {
    if (coded.size() == plain.size()) {
        std::memcpy(plain.data(), coded.data(), coded.size());
        return true;
    }
    const int decoded = LZ4_decompress_safe(reinterpret_cast<const char*>(coded.data()),
                                            reinterpret_cast<char*>(plain.data()),
                                            static_cast<int>(coded.size()), static_cast<int>(plain.size()));
    return decoded == static_cast<int>(plain.size());
}

// The size of the coded block; 0 if it does not fit into `coded`.
std::size_t code_block(Bytes plain, std::span<std::byte> coded) {
    const auto room = std::min(coded.size(), plain.size() - 1);
    const int bytes = LZ4_compress_default(reinterpret_cast<const char*>(plain.data()),
                                           reinterpret_cast<char*>(coded.data()),
                                           static_cast<int>(plain.size()), static_cast<int>(room));
    if (bytes > 0) {
        return static_cast<std::size_t>(bytes);
    }
    if (plain.size() > coded.size()) {
        return 0;
    }
    std::memcpy(coded.data(), plain.data(), plain.size());
    return plain.size();
}

}  // namespace

std::optional<Blob> lz4_coded(Bytes plain) {
    const std::size_t coded_max = plain.size() - (plain.size() + saved_share_min - 1) / saved_share_min;
    std::size_t end = blocks_of(plain.size()) * sizeof(Size);
    if (end >= coded_max) {
        return std::nullopt;
    }
    const auto coded = std::make_unique_for_overwrite<std::byte[]>(coded_max);
    for (std::size_t block = 0; block < blocks_of(plain.size()); ++block) {
        const auto size = static_cast<Size>(
            code_block(plain.subspan(block * coded_block_bytes, bytes_in_block(plain.size(), block)),
                       {coded.get() + end, coded_max - end}));
        if (size == 0) {
            return std::nullopt;
        }
        std::memcpy(coded.get() + block * sizeof(Size), &size, sizeof(Size));
        end += size;
    }
    Blob blob = copy_to_blob({coded.get(), end});
    blob.checksum = checksum_of(blob.span());
    return blob;
}

bool are_zeros(Bytes bytes) {
    return !bytes.empty() && bytes[0] == std::byte{0} &&
           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

bool is_sound(const Extent& extent) {
    switch (extent.coding) {
        case Coding::plain:
            return extent.plain_bytes == extent.blob.size && extent.plain_bytes <= extent_bytes;
        case Coding::lz4:
            return block_starts(extent).has_value();
        case Coding::zeros:
            return extent.blob.size == 0 && extent.plain_bytes <= extent_bytes;
    }
    return false;
}

std::optional<PlainBytes> read_plain(const Extent& extent, std::size_t offset, std::size_t size,
                                     ExtentMemory& memory) {
    offset = std::min(offset, extent.plain_bytes);
    size = std::min(size, extent.plain_bytes - offset);
    if (extent.coding == Coding::plain) {
        return PlainBytes{extent.blob.span().subspan(offset, size), nullptr};
    }
    if (extent.coding == Coding::zeros) {
        return PlainBytes{Bytes(zeros).first(size), nullptr};
    }
    const auto starts = block_starts(extent);
    if (!starts) {
        return std::nullopt;
    }
    const std::size_t first = offset / coded_block_bytes;
    const std::size_t end = blocks_of(offset + size);
    const std::size_t skipped = first * coded_block_bytes;
    auto decoded = memory.allocate(extent_bytes);  // always the same size, so that the memory is reused
    for (std::size_t block = first; block < end; ++block) {
        const Bytes coded =
            extent.blob.span().subspan((*starts)[block], (*starts)[block + 1] - (*starts)[block]);
        if (!decode_block(coded, {decoded.get() + block * coded_block_bytes - skipped,
                                  bytes_in_block(extent.plain_bytes, block)})) {
            return std::nullopt;
        }
    }
    const Bytes bytes(decoded.get() + offset - skipped, size);
    return PlainBytes{bytes, std::move(decoded)};
}

}  // namespace copper
