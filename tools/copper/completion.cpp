#include "tools/copper/completion.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "tools/copper/common/commands.hpp"
#include "tools/copper/look/stored_profiles.hpp"

namespace copper::cli {

namespace {

// Where the words so far lead.
struct Place {
    const CLI::App* command;
    const CLI::Option* waiting = nullptr;  // the option whose value comes next
    std::size_t positionals = 0;           // so many were given
    bool are_options_over = false;         // after "--"

    // The positional that comes next; null if there is none.
    const CLI::Option* positional() const {
        const auto all = positionals_of(*command);
        if (positionals < all.size()) {
            return all[positionals];
        }
        const bool repeats = !all.empty() && all.back()->get_items_expected_max() > 1;
        return repeats ? all.back() : nullptr;
    }
    bool is_option(std::string_view word) const { return !are_options_over && word.starts_with('-'); }

    void pass(const std::string& word) {
        if (word == "=") {  // bash splits --option=value
            return;
        }
        if (waiting != nullptr) {
            waiting = nullptr;
        } else if (word == "--") {
            are_options_over = true;
        } else if (is_option(word)) {
            const auto* option = command->get_option_no_throw(word);
            waiting = option == nullptr || argument_of(*option).empty() ? nullptr : option;
        } else if (const auto* next = find_command(*command, word); next != nullptr && positionals == 0) {
            command = next;
        } else {
            ++positionals;
        }
    }
};

// The first sentence, or its first part.
std::string brief(const std::string& text) {
    return text.substr(
        0, std::min({text.find(". "), text.find(": "), text.find("; "), text.find(" ("), text.find('\n')}));
}

class Candidates {
  public:
    explicit Candidates(std::string begin) : begin_(std::move(begin)) {}
    void offer(const std::string& word, const std::string& meaning) {
        if (word.starts_with(begin_)) {
            text_ += word + "\t" + brief(meaning) + "\n";
        }
    }
    const std::string& text() const { return text_; }

  private:
    std::string begin_;
    std::string text_;
};

std::string commands(const CLI::App& app, const std::string& begin) {
    Candidates found(begin);
    for (const auto* command : commands_of(app)) {
        found.offer(command->get_name(), command->get_description());
    }
    return found.text();
}

std::string options(const CLI::App& command, const std::string& begin) {
    Candidates found(begin);
    for (const auto* option : options_of(command)) {
        found.offer("--" + option->get_lnames().front(), option->get_description());
    }
    return found.text();
}

std::string profiles(const std::string& begin) {
    Candidates found(begin);
    std::error_code error;
    for (const std::filesystem::path file : stored_profiles(error)) {
        found.offer(file.stem(), "");
    }
    return found.text().empty() ? ":files\n" : found.text();
}

// `argument` as in "auto|off|FILE": capitals stand for values of a kind.
std::string values(const std::string& argument, const std::string& before, const std::string& begin) {
    Candidates found(before + begin);
    std::string kind;
    std::istringstream alternatives(argument);
    for (std::string each; std::getline(alternatives, each, '|');) {
        if (each == "FILE" || each == "PATH" || each == "DIR") {
            kind = each == "DIR" ? ":directories\n" : ":files\n";
        } else if (std::islower(static_cast<unsigned char>(each.front())) != 0) {
            found.offer(before + each, "");
        }
    }
    return found.text().empty() ? kind : found.text();
}

}  // namespace

std::string completions(const CLI::App& app, const std::vector<std::string>& words) {
    Place place{.command = &app};
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto* positional = place.positional();
        if (positional != nullptr && positional->get_name() == "CMD" && place.waiting == nullptr &&
            !place.is_option(words[i])) {
            return ":command " + std::to_string(i) + "\n";
        }
        if (i + 1 < words.size()) {
            place.pass(words[i]);
        }
    }
    const std::string last = words.empty() ? "" : words.back();
    if (place.waiting != nullptr) {
        return values(argument_of(*place.waiting), "", last == "=" ? "" : last);
    }
    if (place.is_option(last)) {
        const auto equals = last.find('=');
        const auto* option = place.command->get_option_no_throw(last.substr(0, equals));
        return equals == std::string::npos || option == nullptr
                   ? options(*place.command, last)
                   : values(argument_of(*option), last.substr(0, equals + 1), last.substr(equals + 1));
    }
    const auto* positional = place.positional();
    if (positional != nullptr && positional->get_name() == "COMMAND") {
        const CLI::App* explained = &app;
        for (std::size_t i = words.size() - 1 - place.positionals; i + 1 < words.size() && explained; ++i) {
            explained = find_command(*explained, words[i]);
        }
        return explained == nullptr ? "" : commands(*explained, last);
    }
    if (positional != nullptr && positional->get_name() == "NAME") {
        return profiles(last);
    }
    if (positional != nullptr) {
        return values(positional->get_name(), "", last);
    }
    if (place.positionals > 0) {
        return "";
    }
    const auto found = commands(*place.command, last);
    return found.empty() ? options(*place.command, last) : found;  // nothing but options can follow
}

}  // namespace copper::cli
