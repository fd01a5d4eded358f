#include "tools/copper/common/words.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

namespace copper::cli {

namespace {

// Levenshtein's: insertions, deletions and substitutions.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const auto substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
        }
    }
    return row.back();
}

}  // namespace

std::string counted(std::uint64_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string in_units(std::uint64_t number) {
    auto bytes = static_cast<double>(number);
    constexpr double step = 1024;
    constexpr double three_digits_max = 999.5;
    const char* unit = "bytes";
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
        if (bytes < three_digits_max) {
            break;
        }
        bytes /= step;
        unit = larger;
    }
    std::ostringstream text;
    text.precision(3);
    text << bytes << " " << unit;
    return text.str();
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
    const auto begins_so = [word](const std::string& each) { return each.starts_with(word); };
    if (!word.empty() && std::ranges::count_if(known, begins_so) == 1) {
        return *std::ranges::find_if(known, begins_so);
    }
    constexpr std::size_t slips_max = 2;
    std::optional<std::string> found;
    std::size_t fewest = std::min(slips_max + 1, (word.size() + 1) / 2);
    for (const auto& each : known) {
        if (const auto slips = edit_distance(word, each); slips < fewest) {
            fewest = slips;
            found = each;
        }
    }
    return found;
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
