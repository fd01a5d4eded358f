// How the body of a bulk frame travels: in pieces under a tag of its own, into memory made for it. MPI does
// not let messages of one tag overtake each other (MPI 4.0, 3.5), so bodies arrive in the order of their
// announcements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace copper {

inline constexpr int body_tag = 1;
// Half of a small L2 cache, with their source: over shared memory a piece is there as soon as its receive is
// posted, and it is summed up while the processor's cache has it, before the next one is posted.
inline constexpr std::size_t piece_bytes = 256U << 10;

inline std::size_t pieces_of(std::size_t body_bytes) {
    return (body_bytes + piece_bytes - 1) / piece_bytes;
}

template <typename Byte>
std::span<Byte> piece_of(std::span<Byte> body, std::size_t index) {
    const std::size_t offset = index * piece_bytes;
    return body.subspan(offset, std::min(piece_bytes, body.size() - offset));
}

}  // namespace copper
