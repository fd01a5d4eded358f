// Writes the manual pages, when the project is built: copper_manual DIRECTORY DATE SCRIPT ... Or prints
// docs/options.md: copper_manual --options. All text is that of --help, also for the scripts.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "daemon/control/option_flags.hpp"
#include "daemon/control/option_sources.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/version.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/process.hpp"

namespace {

using namespace copper::cli;

// Text that roff(7) prints as it is.
std::string roff_escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const bool line_begins = out.empty() || out.back() == '\n';
        if (line_begins && (c == '.' || c == '\'')) {
            out += "\\&";
        }
        if (c == '\\' || c == '-') {
            out += c == '-' ? "\\-" : "\\e";
        } else {
            out += c;
        }
    }
    return out;
}

std::string prose(std::string_view text) {
    constexpr std::size_t width = 70;
    return roff_escaped(wrapped(text, width));
}

std::string bold(std::string_view text) {
    return "\\fB" + roff_escaped(text) + "\\fR";
}

std::string italic(std::string_view text) {
    return "\\fI" + roff_escaped(text) + "\\fR";
}

void write_page(const std::filesystem::path& directory, const std::string& name, int section,
                const std::string& text) {
    const auto place = directory / ("man" + std::to_string(section));
    std::filesystem::create_directories(place);
    std::ofstream file(place / (name + "." + std::to_string(section)));
    file << text;
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + name + " in " + place.string());
    }
}

std::string beginning(const std::string& name, int section, const std::string& date, std::string what) {
    const std::string version = copper::version_text("copper");
    std::string title = name;
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    what = what.substr(0, std::min(what.find(". "), what.find("; ")));
    return ".TH " + roff_escaped(title) + " " + std::to_string(section) + " " + date + " \"" +
           version.substr(0, version.find(" (")) + "\" \"Copper\"\n.SH NAME\n" + prose(name + " - " + what) +
           "\n";
}

// The paragraphs below the options in --help. "Exit code" and "Examples" get sections of their own.
std::string rest(const std::string& below_options) {
    std::string notes;
    std::string sections;
    std::string* text = &notes;
    bool paragraph_begins = true;
    bool is_example = false;
    std::istringstream lines(below_options);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("  ") != is_example) {
            *text += is_example ? ".fi\n" : ".nf\n";
            is_example = !is_example;
        }
        if (line.starts_with("Example")) {
            text = &(sections += ".SH EXAMPLES\n");
        } else if (line.starts_with("Exit code")) {
            text = &(sections += ".SH EXIT STATUS\n" + prose(line) + "\n");
        } else if (line.empty()) {
            text = &notes;
            paragraph_begins = true;
        } else {
            const bool new_paragraph = std::exchange(paragraph_begins, false) && text == &notes;
            *text += (new_paragraph ? ".PP\n" : "") +
                     (is_example ? roff_escaped(line.substr(2)) : prose(line)) + "\n";
        }
    }
    return notes + sections + (is_example ? ".fi\n" : "");
}

class Page {
  public:
    Page(const CLI::App& app, std::string command, int section)
        : app_(app), command_(std::move(command)), name_(command_), section_(section) {
        std::replace(name_.begin(), name_.end(), ' ', '-');
    }

    void write(const std::filesystem::path& directory, const std::string& date) const {
        write_page(directory, name_, section_,
                   beginning(name_, section_, date, app_.get_description()) + ".SH SYNOPSIS\n" +
                       synopsis(app_, command_) + ".SH DESCRIPTION\n" + prose(app_.get_description() + ".") +
                       "\n" + arguments(app_) + commands() + rest(app_.get_footer()) + see_also());
    }

  private:
    static std::string synopsis(const CLI::App& command, const std::string& words) {
        std::string text = bold(words);
        if (!options_of(command).empty()) {
            text += " [" + italic("OPTION") + " ...]";
        }
        if (!commands_of(command).empty()) {
            text += " " + italic("COMMAND") + " [" + italic("ARGUMENT") + " ...]";
        }
        for (const auto* each : positionals_of(command)) {
            const auto more = each->get_items_expected_max() > 1 ? " ..." : "";
            text += each->get_required() ? " " + italic(each->get_name()) + more
                                         : " [" + italic(each->get_name()) + more + "]";
        }
        return text + "\n";
    }

    static std::string arguments(const CLI::App& command) {
        std::string text;
        for (const auto* each : positionals_of(command)) {
            text += ".TP\n" + italic(each->get_name()) + "\n" + prose(each->get_description() + ".") + "\n";
        }
        for (const auto* each : options_of(command)) {
            const auto argument = argument_of(*each);
            std::string names;
            for (const auto& name : each->get_snames()) {
                names += bold("-" + name) + ", ";
            }
            names += bold("--" + each->get_lnames().front());
            text += ".TP\n" + names + (argument.empty() ? "" : " " + italic(argument)) + "\n" +
                    prose(each->get_description() + ".") + "\n";
        }
        return text.empty() ? "" : ".SH OPTIONS\n" + text;
    }

    std::string commands() const {
        std::string text;
        for (const auto* each : commands_of(app_)) {
            text += ".TP\n" + synopsis(*each, command_ + " " + each->get_name()) +
                    prose(each->get_description() + ".") + "\n";
        }
        return text.empty() ? "" : ".SH COMMANDS\n" + text;
    }

    std::string see_also() const {
        std::string text = ".SH SEE ALSO\n";
        if (app_.get_name() != "copper") {
            text += ".BR copper (1),\n";
        } else {
            for (const auto* each : commands_of(app_)) {
                text += ".BR copper\\-" + each->get_name() + " (1),\n";
            }
        }
        return text + (section_ == 8 ? ".BR copper\\-launch (1)\n" : ".BR copperd (8)\n");
    }

    const CLI::App& app_;
    std::string command_;  // "copper launch"
    std::string name_;     // "copper-launch"
    int section_;
};

// --help of a script: "usage: NAME [options]", what it does, a line for each option, and the rest.
void write_page_of(const std::string& script, const std::filesystem::path& directory,
                   const std::string& date) {
    const auto help = capture({script, "--help"}, std::chrono::seconds(10));
    if (!help || !succeeded(*help)) {
        throw std::runtime_error(script + " --help failed");
    }
    std::istringstream lines(help->text);
    std::string usage;
    std::string what;
    std::getline(lines, usage);
    std::getline(lines, what);
    std::string options;
    std::string others;
    for (std::string line; std::getline(lines, line);) {
        const auto gap = line.find("  ", 2);
        if (line.starts_with("  -") && gap != std::string::npos) {
            options += ".TP\n" + bold(line.substr(2, gap - 2)) + "\n" +
                       prose(line.substr(line.find_first_not_of(' ', gap))) + "\n";
        } else {
            others += line + "\n";
        }
    }
    const std::string name = std::filesystem::path(script).filename();
    write_page(directory, name, 1,
               beginning(name, 1, date, what) + ".SH SYNOPSIS\n" + bold(name) + " [" + italic("OPTION") +
                   " ...]\n.SH DESCRIPTION\n" + prose(what + ".") + "\n.SH OPTIONS\n" + options +
                   rest(others) + ".SH SEE ALSO\n.BR copper\\-launch (1),\n.BR copper\\-stop (1)\n");
}

void write_all(const std::filesystem::path& directory, const std::string& date) {
    CLI::App user;
    Action action;
    add_commands(user, action);
    Page(user, "copper", 1).write(directory, date);
    for (const auto* command : commands_of(user)) {
        Page(*command, "copper " + command->get_name(), 1).write(directory, date);
    }
    CLI::App daemon;
    copper::FlagTexts texts;
    std::string config;
    copper::add_daemon_command_line(daemon, texts, config);
    Page(daemon, "copperd", 8).write(directory, date);
}

// A sentence in a cell of a table in Markdown.
std::string markdown_sentence(const std::string& text) {
    std::string out;
    for (const char c : text) {
        out += c == '|' || c == '*' || c == '<' ? std::string{'\\', c} : std::string{c};
    }
    out.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(out.front())));
    return out + ".";
}

// In code, Markdown escapes nothing but what separates cells.
std::string markdown_row(std::string code, const std::string& text) {
    for (auto at = code.find('|'); at != std::string::npos; at = code.find('|', at + 2)) {
        code.insert(at, 1, '\\');
    }
    return "| `" + code + "` | " + markdown_sentence(text) + " |\n";
}

std::string options_page() {
    CLI::App user;
    Action action;
    add_commands(user, action);
    std::string commands;
    for (const auto* each : commands_of(user)) {
        commands += markdown_row("copper " + each->get_name(), each->get_description());
    }
    const auto* launch = find_command(user, "launch");
    std::string options;
    for (const auto* each : options_of(*launch)) {
        const auto argument = argument_of(*each);
        const std::string letter = each->get_snames().empty() ? "" : "-" + each->get_snames().front() + ", ";
        options += markdown_row(
            letter + "--" + each->get_lnames().front() + (argument.empty() ? "" : " ") + argument,
            each->get_description());
    }
    std::string variables;
    for (const auto& row : copper::option_table()) {
        if (row.audience == copper::OptionRow::Audience::seldom) {
            variables += markdown_row(
                copper::variable_of(row.name) + "=" + (row.argument.empty() ? "true" : row.argument),
                row.help);
        }
    }
    const auto footer = launch->get_footer();
    return "# Commands and options\n\n"
           "<!-- Printed by `copper_manual --options`. A test compares this page with the program. -->\n\n"
           "`copper help COMMAND` and `man copper-COMMAND` explain each command, with examples.\n\n"
           "| command | what it does |\n|---|---|\n" +
           commands + "\n## copper launch\n\n`copper job` has the same options, except `--dry-run`.\n\n" +
           footer.substr(0, footer.find("\n\n")) + "\n\n| option | meaning |\n|---|---|\n" + options +
           "\nFew need these, which are variables or keys of the file (`compress = \"lz4\"`) only:\n\n"
           "| variable | meaning |\n|---|---|\n" +
           variables;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && argv[1] == std::string_view("--options")) {
        std::cout << options_page();
        return exit_done;
    }
    if (argc < 3) {
        std::cerr << "usage: copper_manual DIRECTORY DATE SCRIPT ...\n       copper_manual --options\n";
        return exit_usage;
    }
    try {
        write_all(argv[1], argv[2]);
        for (int i = 3; i < argc; ++i) {
            write_page_of(argv[i], argv[1], argv[2]);
        }
        return exit_done;
    } catch (const std::exception& error) {
        std::cerr << "copper_manual: " << error.what() << "\n";
        return exit_failed;
    }
}
