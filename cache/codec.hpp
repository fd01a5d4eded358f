// An Extent's bytes in fewer bytes: LZ4 blocks (lz4/doc/lz4_Block_format.md).
//
// First comes a table with the size of each coded block (32 bits, little endian), then the blocks. Each holds
// coded_block_bytes of the plain bytes, the last one the rest, and knows nothing of the others: a read
// decodes only those that it touches. One that LZ4 does not make smaller stands there as it is.
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

// Nothing unless the bytes become less by a 16th. REQUIRES: at most extent_bytes.
std::optional<Blob> lz4_coded(std::span<const std::byte> plain);

// False if the extent's sizes contradict each other. To be asked of what comes from another node.
bool is_sound(const Extent& extent);

// `bytes` lie in the extent itself or in `decoded`.
struct PlainBytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<std::byte[]> decoded;
};

// `size` plain bytes of the extent from `offset`, fewer at its end. Nothing if what was coded is damaged.
// They are decoded into `memory`.
std::optional<PlainBytes> read_plain(const Extent& extent, std::size_t offset, std::size_t size,
                                     ExtentMemory& memory);

}  // namespace copper
