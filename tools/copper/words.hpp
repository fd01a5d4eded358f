// Text as a shell reads and writes it, without a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace copper::cli {

// In single quotes where a POSIX shell would otherwise see more than the text itself.
std::string shell_quote(std::string_view text);
std::string shell_quote(const std::vector<std::string>& words);

// Splits at blanks, with '...', "..." and \ as in a POSIX shell; nothing is expanded. The error says what is
// open.
tl::expected<std::vector<std::string>, std::string> split_words(std::string_view text);

}  // namespace copper::cli
