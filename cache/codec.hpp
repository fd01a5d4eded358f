// Compresses the bytes of an Extent into LZ4 blocks (lz4/doc/lz4_Block_format.md).
//
// A table comes first: the size of each coded block (32 bits, little endian). The blocks follow. Each one
// holds coded_block_bytes of plain bytes, the last one the rest. Blocks are independent, so a read decodes
// only the blocks it touches. A block that LZ4 cannot shrink is stored plain.
//
// An extent of zeros has no coded bytes at all.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "cache/extent_memory.hpp"
#include "cache/object.hpp"

namespace copper {

inline constexpr std::size_t coded_block_bytes = 64U << 10;

// Nothing unless the bytes shrink by at least a 16th. REQUIRES: at most extent_bytes.
std::optional<Blob> lz4_coded(std::span<const std::byte> plain);

// Whether there are bytes, and all are 0.
bool are_zeros(std::span<const std::byte> bytes);

// False if the extent's sizes contradict each other. Call this for every extent from another node.
bool is_sound(const Extent& extent);

// `bytes` point into the extent, into `decoded`, or to zeros that are always there.
struct PlainBytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<std::byte[]> decoded;
};

// `size` plain bytes of the extent from `offset`, fewer at its end, decoded into `memory`. Nothing if the
// coded bytes are damaged.
std::optional<PlainBytes> read_plain(const Extent& extent, std::size_t offset, std::size_t size,
                                     ExtentMemory& memory);

}  // namespace copper
