// Words of commands and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace copper::cli {

// The words, with `separator` between them.
template <typename Words>
std::string joined(const Words& words, std::string_view separator) {
    std::string text;
    for (const std::string_view word : words) {
        text.append(text.empty() ? "" : separator).append(word);
    }
    return text;
}

// "1 file", "2 files".
std::string counted(std::uint64_t count, const std::string& noun);

// "1.5 GiB".
std::string in_units(std::uint64_t bytes);

// The one of `known` that was probably meant by `word`: the only one that begins with it, or the one that
// differs least, by at most two wrong, missing or additional letters, and less than half of the word.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

// Splits at blanks. Understands '...', "..." and \ like a POSIX shell, but expands nothing. The error names
// the open quote.
tl::expected<std::vector<std::string>, std::string> split_words(std::string_view text);

}  // namespace copper::cli
