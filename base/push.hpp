// Who gets what a reader has read.
#pragma once

#include <cstdint>

namespace copper {

enum class Push : std::uint8_t {
    automatic,  // everyone, if the reader sees that nodes share it (Sharing); otherwise those who ask
    always,     // everyone
    never,      // those who ask
};

}  // namespace copper
