#include "daemon/control/fingerprint.hpp"

#include <xxhash.h>

#include <array>
#include <cstdio>

namespace copper {

std::string fingerprint_of(std::string_view text) {
    std::array<char, 17> digits = {};
    std::snprintf(digits.data(), digits.size(), "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(text.data(), text.size())));
    return digits.data();
}

}  // namespace copper
