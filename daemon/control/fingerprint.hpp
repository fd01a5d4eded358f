// A short name for a text: 16 hexadecimal digits. Texts that differ have different ones, unless somebody
// looks for others on purpose.
#pragma once

#include <string>
#include <string_view>

namespace copper {

std::string fingerprint_of(std::string_view text);

}  // namespace copper
