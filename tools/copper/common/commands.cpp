#include "tools/copper/common/commands.hpp"

#include <algorithm>
#include <iostream>

#include "daemon/control/version.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {

namespace {

constexpr std::size_t text_width = 78;
constexpr std::size_t column_width = 28;

class HelpFormatter : public CLI::Formatter {
  public:
    HelpFormatter() {
        this->column_width(cli::column_width);
        label("SUBCOMMAND", "COMMAND");
    }
    std::string make_description(const CLI::App* app) const override {
        return wrapped(CLI::Formatter::make_description(app), text_width);
    }
    std::string make_subcommand(const CLI::App* command) const override {
        return row(command->get_name(), command->get_description());
    }
    std::string make_option(const CLI::Option* option, bool is_positional) const override {
        const auto argument = is_positional ? "" : argument_of(*option);
        return row(make_option_name(option, is_positional) + (argument.empty() ? "" : " ") + argument,
                   option->get_description());
    }

  private:
    static std::string row(const std::string& name, const std::string& description) {
        std::string text = "  " + name;
        const std::string indent(cli::column_width, ' ');
        text += text.size() < indent.size() ? indent.substr(text.size()) : "\n" + indent;
        for (const char c : wrapped(description, text_width - indent.size())) {
            text += c == '\n' ? "\n" + indent : std::string(1, c);
        }
        return text + "\n";
    }
};

Result<void> print_help(const CLI::App& app, const std::vector<std::string>& names) {
    const CLI::App* command = &app;
    std::string title = app.get_name();
    for (const auto& name : names) {
        const CLI::App* found = find_command(*command, name);
        if (found == nullptr) {
            return misused(name + ": no such command" + or_rather(name, names_of_commands(*command)) +
                           "\nTry 'copper --help'.");
        }
        command = found;
        title += " " + name;
    }
    // CLI::App::help() would print the help of `copper help`.
    std::cout << command->get_formatter()->make_help(command, title, CLI::AppFormatMode::Normal);
    return {};
}

void add_help(CLI::App& app, Action& action) {
    auto names = std::make_shared<std::vector<std::string>>();
    auto* command = app.add_subcommand("help", "Explain a command");
    command->add_option("COMMAND", *names, "A command; all commands are listed without it");
    command->footer("Examples:\n  copper help launch\n  copper help profile show");
    command->callback([names, &app, &action] { action = [names, &app] { return print_help(app, *names); }; });
}

}  // namespace

void add_commands(CLI::App& app, Action& action) {
    app.name("copper");
    app.description("Reads a parallel filesystem on one node and broadcasts it to all");
    app.formatter(std::make_shared<HelpFormatter>());  // the commands inherit it
    app.set_version_flag("--version", version_text("copper"), "Print the version and how it was built");
    app.set_help_flag("-h,--help", "Print this help");
    app.require_subcommand(1);
    for (const auto add :
         {add_launch, add_stop, add_status, add_stats, add_top, add_report, add_logs, add_path, add_env,
          add_run, add_job, add_check, add_doctor, add_prefetch, add_refresh, add_profile, add_help}) {
        add(app, action);
    }
    app.footer(
        "Exit code: 0 done, 1 failed, 2 wrong use, 3 something is missing on this machine. The first line "
        "on\n"
        "standard error says why.\n\n"
        "Examples, in a job script:\n"
        "  copper launch --tree /lustre/sw/conda\n"
        "  eval \"$(copper env)\"\n"
        "  srun python train.py\n"
        "  copper stop\n\n"
        "'copper help COMMAND' explains a command and has examples.");
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
    return command.get_options(
        [](const CLI::Option* option) { return option->nonpositional() && !option->get_group().empty(); });
}

std::vector<const CLI::Option*> positionals_of(const CLI::App& command) {
    return command.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

const CLI::App* find_command(const CLI::App& app, std::string_view name) {
    const auto commands = commands_of(app);
    const auto found = std::find_if(commands.begin(), commands.end(),
                                    [name](const CLI::App* each) { return each->get_name() == name; });
    return found == commands.end() ? nullptr : *found;
}

std::string or_rather(std::string_view word, const std::vector<std::string>& known) {
    const auto near = nearest(word, known);
    return near ? "; did you mean " + *near + "?" : std::string();
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
    std::vector<std::string> names;
    for (const auto* command : commands_of(app)) {
        names.push_back(command->get_name());
    }
    return names;
}

std::vector<std::string> words_given(const std::vector<CLI::Option*>& options) {
    std::vector<std::string> words;
    for (const auto* option : options) {
        for (const auto& result : option->results()) {
            words.push_back(option->get_name());
            if (option->get_items_expected_max() > 0) {
                words.push_back(result);
            }
        }
    }
    return words;
}

std::string argument_of(const CLI::Option& option) {
    const auto type = option.get_type_name();
    return option.get_type_size() == 0 ? "" : type.substr(0, type.find(':'));  // then, what CLI11 checks
}

std::string wrapped(std::string_view text, std::size_t width) {
    std::string lines(text);
    std::size_t line = 0;
    for (std::size_t i = 0, blank = 0; i < lines.size(); ++i) {
        if (lines[i] == '\n') {
            line = i + 1;
        } else if (lines[i] == ' ') {
            blank = i;
        }
        if (i - line >= width && blank > line) {
            lines[blank] = '\n';
            line = blank + 1;
        }
    }
    return lines;
}

}  // namespace copper::cli
