// How a frame is written as an input: the length of the header without its checksum (16 bits), the header,
// the body.
//
// Checksums would keep a fuzzer out, so the target makes the header's; and where the header holds the mark,
// it puts the body's.
#pragma once

#include "fabric/fabric.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace copper::fuzz {

inline constexpr std::size_t wire_checksum_bytes = sizeof(std::uint64_t);
inline constexpr std::uint64_t body_checksum_mark = 0x4d55535f59444f42;  // "BODY_SUM"

// In `bytes`, wherever it stands.
inline void replace_each(std::span<std::byte> bytes, std::uint64_t from, std::uint64_t to) {
    for (std::size_t i = 0; i + sizeof from <= bytes.size(); ++i) {
        if (std::memcmp(bytes.data() + i, &from, sizeof from) == 0) {
            std::memcpy(bytes.data() + i, &to, sizeof to);
        }
    }
}

}  // namespace copper::fuzz
