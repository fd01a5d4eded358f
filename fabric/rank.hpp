// The index of a node in the fabric, 0 to size - 1.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace copper {

struct Rank {
    std::uint32_t value = 0;
    auto operator<=>(const Rank&) const = default;
};

}  // namespace copper
