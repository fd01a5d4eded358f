#include "tools/copper/misuse.hpp"

#include <algorithm>

#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

using Words = std::vector<std::string>;

// "copper", and the commands that were given: "copper profile show".
struct Asked {
    const CLI::App* command;
    std::string title;
};
Asked what_was_asked(const CLI::App& app) {
    Asked asked{&app, app.get_name()};
    while (!asked.command->get_subcommands().empty()) {
        asked.command = asked.command->get_subcommands().front();
        asked.title += " " + asked.command->get_name();
    }
    return asked;
}

const std::string* first_option(const Words& words) {
    const auto found = std::find_if(words.begin(), words.end(),
                                    [](const std::string& word) { return word.starts_with('-'); });
    return found == words.end() ? nullptr : &*found;
}

std::string no_such_option(const std::string& word, const CLI::App& command) {
    Words known;
    for (const auto* each : command.get_options()) {
        known.push_back(each->get_name());
    }
    return word + ": no such option" + or_rather(word.substr(0, word.find('=')), known);
}

// For arguments that no option or command takes.
std::string why_unexpected(const CLI::App& app, const Asked& asked) {
    const auto rest = app.remaining(true);
    const auto* option = first_option(rest);
    if (option == nullptr) {
        return (rest.empty() ? "" : rest.front()) + ": unexpected argument";
    }
    if (asked.command != &app && first_option(app.remaining(false)) != nullptr) {
        return *option + ": options come after the command: " + asked.title + " " + *option;
    }
    return no_such_option(*option, *asked.command);
}

// CLI11 reports an unknown command as a missing one.
std::string what_is_missing(const CLI::App& command, const CLI::ParseError& error) {
    const auto commands = names_of_commands(command);
    if (commands.empty()) {
        return error.what();
    }
    const auto rest = command.remaining();
    if (rest.empty()) {
        return "no command given; there are " + joined(commands, ", ");
    }
    return rest.front().starts_with('-')
               ? no_such_option(rest.front(), command)
               : rest.front() + ": no such command" + or_rather(rest.front(), commands);
}

std::string reason(const CLI::App& app, const Asked& asked, const CLI::ParseError& error) {
    const std::string text = error.what();
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
        return what_is_missing(*asked.command, error);
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        return why_unexpected(app, asked);
    }
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
        return text.substr(0, text.find(':')) + ": needs a value";
    }
    if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
        // "Could not convert: --node = x". No options have other types than numbers and texts.
        const auto option = text.find("--");
        const auto equals = text.find(" = ");
        return text.substr(option, equals - option) + " " + text.substr(equals + 3) +
               ": must be a whole number";
    }
    if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
        constexpr std::string_view verb = " excludes ";
        const auto at = text.find(verb);
        return text.substr(0, at) + ": not together with " + text.substr(at + verb.size());
    }
    return text;
}

}  // namespace

void check_values(CLI::App& app) {
    for (auto* option : app.get_options()) {
        if (option->get_positional() || option->get_items_expected_max() == 0) {
            continue;
        }
        const bool may_be_empty = option->get_name() != "--mount";
        option->check([may_be_empty](const std::string& value) -> std::string {
            if (value.starts_with("--")) {
                return "needs a value, and got the option " + value;
            }
            // Most likely a variable that is not set. It must not mean the default.
            return value.empty() && !may_be_empty ? "an empty path" : "";
        });
    }
    for (auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        check_values(*command);
    }
}

Failure misuse(const CLI::App& app, const CLI::ParseError& error) {
    const auto asked = what_was_asked(app);
    return {exit_usage, reason(app, asked, error) + "\nTry '" + asked.title + " --help'."};
}

}  // namespace copper::cli
