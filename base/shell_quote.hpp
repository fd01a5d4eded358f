// Quotes text for a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace copper {

// In single quotes if a POSIX shell would not take the text literally.
std::string shell_quote(std::string_view text);
// The words of a command, with blanks in between.
std::string shell_quote(const std::vector<std::string>& words);

}  // namespace copper
