// To whom a reader sends what it has read.
#pragma once

#include <cstdint>

namespace copper {

enum class Push : std::uint8_t {
    automatic,  // to everyone; the extents of a large file once it is known to be shared (Sharing)
    always,     // to everyone
    never,      // to those who ask
};

}  // namespace copper
