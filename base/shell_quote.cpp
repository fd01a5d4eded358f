#include "base/shell_quote.hpp"

#include <algorithm>

namespace copper {
namespace {

bool is_plain(char c) {
    const bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter_or_digit || std::string_view("%+,-./:=@_").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(std::string_view text) {
    if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) {
        return std::string(text);
    }
    std::string quoted = "'";
    for (const char c : text) {
        if (c == '\'') {
            quoted += "'\\''";
        } else {
            quoted += c;
        }
    }
    return quoted + "'";
}

std::string shell_quote(const std::vector<std::string>& words) {
    std::string line;
    for (const auto& word : words) {
        line += (line.empty() ? "" : " ") + shell_quote(word);
    }
    return line;
}

}  // namespace copper
