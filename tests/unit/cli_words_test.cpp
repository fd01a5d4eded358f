#include <gtest/gtest.h>

#include "base/shell_quote.hpp"
#include "tools/copper/common/words.hpp"

namespace copper::cli {
namespace {

TEST(ShellQuote, LeavesPlainWordsAndQuotesOthers) {
    EXPECT_EQ(shell_quote("/a/b-1.2:c"), "/a/b-1.2:c");
    EXPECT_EQ(shell_quote(""), "''");
    EXPECT_EQ(shell_quote("a b"), "'a b'");
    EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_quote("$(rm x)"), "'$(rm x)'");
    EXPECT_EQ(shell_quote("a\nb"), "'a\nb'");
    EXPECT_EQ(shell_quote("~/x"), "'~/x'");
}

TEST(Nearest, IsASlipOfThePen) {
    const std::vector<std::string> known = {"--tree", "--deadline", "launch", "stop"};
    EXPECT_EQ(nearest("--trees", known), "--tree");
    EXPECT_EQ(nearest("--daedline", known), "--deadline");
    EXPECT_EQ(nearest("lauch", known), "launch");
    EXPECT_EQ(nearest("step", known), "stop");
    EXPECT_EQ(nearest("--prefix", known), std::nullopt);
    EXPECT_EQ(nearest("lst", {"list", "show"}), "list");
    EXPECT_EQ(nearest("ls", {"list", "show"}), std::nullopt);
    EXPECT_EQ(nearest("", known), std::nullopt);
}

TEST(Nearest, IsTheOnlyOneThatBeginsSo) {
    EXPECT_EQ(nearest("--cache", {"--cache-bytes", "--cores"}), "--cache-bytes");
    EXPECT_EQ(nearest("--c", {"--cache-bytes", "--cores"}), std::nullopt);
}

TEST(SplitWords, ReadsWhatQuoteWrites) {
    const std::vector<std::string> words = {"--mca", "a b", "it's", "", "$x", "back\\slash", "new\nline"};
    EXPECT_EQ(split_words(shell_quote(words)), words);
}

TEST(SplitWords, QuotesAsInAShell) {
    using Words = std::vector<std::string>;
    EXPECT_EQ(split_words("  a\tb \n"), (Words{"a", "b"}));
    EXPECT_EQ(split_words(R"(--mca plm_rsh_agent "ssh -x")"), (Words{"--mca", "plm_rsh_agent", "ssh -x"}));
    EXPECT_EQ(split_words(R"(a" b"'c d')"), (Words{"a bc d"}));
    EXPECT_EQ(split_words(R"("\n\"\\")"), (Words{R"(\n"\)"}));
    EXPECT_EQ(split_words(R"('\')"), (Words{"\\"}));
    EXPECT_EQ(split_words(R"(a\ b)"), (Words{"a b"}));
    EXPECT_EQ(split_words(""), Words{});
}

TEST(SplitWords, SaysWhatIsOpen) {
    EXPECT_FALSE(split_words("'abc").has_value());
    EXPECT_FALSE(split_words("abc\\").has_value());
}

}  // namespace
}  // namespace copper::cli
