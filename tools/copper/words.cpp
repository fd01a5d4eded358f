#include "tools/copper/words.hpp"

#include <algorithm>
#include <optional>

namespace copper::cli {

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

tl::expected<std::vector<std::string>, std::string> split_words(std::string_view text) {
    std::vector<std::string> words;
    std::optional<std::string> word;
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool blank = c == ' ' || c == '\t' || c == '\n';
        if (quote == 0 && blank) {
            if (word) {
                words.push_back(std::move(*word));
                word.reset();
            }
            continue;
        }
        word = word.value_or("");
        if (c == '\\' && quote != '\'') {
            if (++i == text.size()) {
                return tl::make_unexpected(std::string("a backslash at the end"));
            }
            // Within "...", a backslash escapes only these.
            if (quote == '"' && std::string_view("$`\"\\\n").find(text[i]) == std::string_view::npos) {
                *word += c;
            }
            *word += text[i];
        } else if (quote == 0 && (c == '\'' || c == '"')) {
            quote = c;
        } else if (c == quote) {
            quote = 0;
        } else {
            *word += c;
        }
    }
    if (quote != 0) {
        return tl::make_unexpected(std::string("a quote that is not closed: ") + quote);
    }
    if (word) {
        words.push_back(std::move(*word));
    }
    return words;
}

}  // namespace copper::cli
