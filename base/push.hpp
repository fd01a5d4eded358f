// To whom a reader sends what it has read.
#pragma once

#include <cstdint>

namespace copper {

enum class Push : std::uint8_t {
    automatic,  // to everyone, what is shared as far as the reader can see (Sharing); else to those who ask
    always,     // to everyone
    never,      // to those who ask
};

}  // namespace copper
