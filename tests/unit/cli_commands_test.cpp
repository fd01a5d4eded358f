// The command line as a whole: examples of its help, completion.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>
#include <sstream>

#include "tests/support/temporary_directory.hpp"
#include "tools/copper/common/commands.hpp"
#include "tools/copper/common/words.hpp"
#include "tools/copper/completion.hpp"

namespace copper::cli {
namespace {

class CommandLine : public testing::Test {
  protected:
    CommandLine() { add_commands(app, action); }

    // The candidates without their meanings, or what the shell is told.
    std::string complete(const std::vector<std::string>& words) const {
        return std::regex_replace(completions(app, words), std::regex("\t[^\n]*\n|\n"), " ");
    }

    CLI::App app;
    Action action;
};

// The commands in the indented lines below "Example".
std::vector<std::string> examples_of(const CLI::App& command) {
    std::vector<std::string> found;
    std::istringstream lines(command.get_footer());
    const std::regex of_copper("copper( [^|>#)`]*)");
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (line.starts_with("  ") && std::regex_search(line, match, of_copper)) {
            found.push_back(match[1]);
        }
    }
    return found;
}

// Null if the line is wrong.
std::vector<std::string> commands_that_take(const std::string& line) {
    CLI::App app;
    Action action;
    add_commands(app, action);
    auto words = split_words(line).value();
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
    std::vector<std::string> names;
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
        at = at->get_subcommands().front();
        names.push_back(at->get_name());
    }
    return names;
}

TEST_F(CommandLine, EachHelpHasExamplesWhichAreRight) {
    const std::function<void(const CLI::App&, const std::vector<std::string>&)> look =
        [&](const CLI::App& command, const std::vector<std::string>& names) {
            const auto examples = examples_of(command);
            EXPECT_FALSE(examples.empty()) << joined(names, " ") << " has no example";
            for (const auto& line : examples) {
                std::vector<std::string> taken;
                EXPECT_NO_THROW(taken = commands_that_take(line)) << "copper" << line;
                taken.resize(names.size());
                EXPECT_EQ(taken, names)
                    << "the help of " << joined(names, " ") << " has the example: copper" << line;
            }
            for (const auto* each : commands_of(command)) {
                auto more = names;
                more.push_back(each->get_name());
                look(*each, more);
            }
        };
    look(app, {});
}

TEST_F(CommandLine, HelpFitsATerminal) {
    for (const auto* command : commands_of(app)) {
        std::istringstream lines(command->help("copper"));
        for (std::string line; std::getline(lines, line);) {
            EXPECT_LE(line.size(), 110) << command->get_name() << ": " << line;
        }
    }
}

TEST_F(CommandLine, CompletesCommands) {
    EXPECT_EQ(complete({"la"}), "launch ");
    EXPECT_EQ(complete({"sta"}), "status stats ");
    EXPECT_EQ(complete({"profile", ""}), "list show remove ");
    EXPECT_EQ(complete({"help", "profi"}), "profile ");
    EXPECT_EQ(complete({"help", "profile", "s"}), "show ");
    EXPECT_EQ(complete({"help", "launch", ""}), "");
    EXPECT_EQ(complete({"--ver"}), "--version ");
    EXPECT_EQ(complete({"nonsense", "l"}), "");
    EXPECT_EQ(complete({"env", "fish"}), "");
    EXPECT_EQ(completions(app, {}), completions(app, {""}));
}

TEST_F(CommandLine, CompletesNamesOfProfiles) {
    const test::TemporaryDirectory directory;
    ::setenv("XDG_CACHE_HOME", directory.path().c_str(), 1);
    EXPECT_EQ(complete({"profile", "show", ""}), ":files ") << "none is there";
    std::filesystem::create_directories(directory.path() + "/copper/profiles");
    for (const char* name : {"train-1", "train-2", "other-3"}) {
        test::write_file(directory.path() + "/copper/profiles/" + name + ".profile", "x");
    }
    EXPECT_EQ(complete({"profile", "show", "tr"}), "train-1 train-2 ");
    EXPECT_EQ(complete({"profile", "remove", "other-3", ""}), "other-3 train-1 train-2 ");
    EXPECT_EQ(complete({"profile", "show", "./"}), ":files ") << "a file";
    ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(CommandLine, CompletesOptionsAndTheirValues) {
    EXPECT_EQ(complete({"launch", "--tr"}), "--tree ");
    EXPECT_EQ(complete({"status", ""}), "--help --mount --nodes --json ") << "nothing else can follow";
    EXPECT_EQ(complete({"launch", "--tree", "/a", "--dry"}), "--dry-run ");
    EXPECT_EQ(complete({"launch", "--require"}), "") << "hidden";
    EXPECT_EQ(complete({"launch", "--compr"}), "") << "a variable";
    EXPECT_EQ(complete({"launch", "--log-level", "d"}), "debug ");
    EXPECT_EQ(complete({"launch", "--log-level", "=", "w"}), "warning ") << "as bash splits it";
    EXPECT_EQ(complete({"launch", "--log-level", "="}), "none fatal error warning info debug ");
    EXPECT_EQ(complete({"launch", "--log-level=w"}), "--log-level=warning ") << "as zsh and fish leave it";
    EXPECT_EQ(complete({"env", "--shell", "z"}), "zsh ");
    EXPECT_EQ(complete({"launch", "--profile", "o"}), "off ");
    EXPECT_EQ(complete({"launch", "--profile", "/a"}), ":files ");
    EXPECT_EQ(complete({"launch", "--profile", "=", "/a"}), ":files ");
    EXPECT_EQ(complete({"launch", "--tree", "launch"}), ":files ");
    EXPECT_EQ(complete({"stats", "--mount", ""}), ":directories ");
    EXPECT_EQ(complete({"stats", "--mount=/t"}), ":directories ");
    EXPECT_EQ(complete({"launch", "--readers", ""}), "");
    EXPECT_EQ(complete({"stats", "--json", "--al"}), "--all ");
}

TEST_F(CommandLine, CompletesPathsAndCommandsOfOthers) {
    EXPECT_EQ(complete({"prefetch", ""}), ":files ");
    EXPECT_EQ(complete({"prefetch", "/a", "/b"}), ":files ");
    EXPECT_EQ(complete({"path", "/a", "/b"}), "") << "takes one path";
    EXPECT_EQ(complete({"run", "py"}), ":command 1 ");
    EXPECT_EQ(complete({"run", "python3", "--mo"}), ":command 1 ");
    EXPECT_EQ(complete({"run", "--node", "1", "--", "python3", ""}), ":command 4 ");
    EXPECT_EQ(complete({"check", "--", "--odd"}), ":command 2 ");
}

TEST(Wrapped, BreaksAtBlanksOnly) {
    EXPECT_EQ(wrapped("aa bb cc", 5), "aa bb\ncc");
    EXPECT_EQ(wrapped("aa bb cc", 4), "aa\nbb\ncc");
    EXPECT_EQ(wrapped("aaaaaaa bb", 4), "aaaaaaa\nbb");
    EXPECT_EQ(wrapped("aa\nbb cc", 5), "aa\nbb cc");
    EXPECT_EQ(wrapped("", 5), "");
}

}  // namespace
}  // namespace copper::cli
