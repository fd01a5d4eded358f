#include <gtest/gtest.h>

#include "tools/copper/launch/report.hpp"
#include "tools/copper/nodes/ready.hpp"

namespace copper::cli {
namespace {

const std::string three_of_four =
    R"({"copper":"ready","ready":3,"nodes":4,"failed":[{"host":"cn2","reason":"it's \"full\""}],)"
    R"("missing":["cn3"],"done":true})";

TEST(Readiness, IsFoundBehindAPrefixAndBeforeOtherText) {
    const auto plain = parse_readiness(three_of_four);
    ASSERT_TRUE(plain.has_value());
    EXPECT_EQ(plain->ready, 3U);
    EXPECT_EQ(plain->nodes, 4U);
    EXPECT_TRUE(plain->done);
    EXPECT_FALSE(plain->serves);
    ASSERT_EQ(plain->failed.size(), 1U);
    EXPECT_EQ(plain->missing, std::vector<std::string>{"cn3"});
    EXPECT_EQ(plain->failed[0].host, "cn2");
    EXPECT_EQ(plain->failed[0].reason, "it's \"full\"");
    EXPECT_EQ(parse_readiness("[1,0]<stdout>:" + three_of_four + "[cn1] warning"), plain);
}

TEST(Readiness, NamesTheJobThatHasTheMount) {
    const auto read = parse_readiness(
        R"({"copper":"ready","ready":0,"nodes":1,"failed":[{"host":"cn2","reason":"served","batch_job":"17",)"
        R"("batch_run":"1","launch":"5eed","is_served":true}],"done":true})");
    ASSERT_TRUE(read && read->failed.size() == 1);
    const Readiness::Failed failed{.host = "cn2",
                                   .reason = "served",
                                   .batch_job = "17",
                                   .batch_run = "1",
                                   .launch = "5eed",
                                   .is_served = true};
    EXPECT_EQ(read->failed[0], failed);
}

TEST(Readiness, RefusesWhatNestsTooDeepForTheStack) {
    constexpr std::size_t depth = 1'000'000;
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1,"nodes":1,"failed":)" +
                                 std::string(depth, '[') + std::string(depth, ']') + "}"));
}

TEST(Readiness, RefusesNumbersOutOfTheirRange) {
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1.5,"nodes":1})"));
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1,"nodes":-1})"));
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1,"nodes":4294967296})"));
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1,"nodes":1,"missing":[3]})"));
}

TEST(Readiness, RefusesEverythingElse) {
    EXPECT_FALSE(parse_readiness("").has_value());
    EXPECT_FALSE(parse_readiness("ready").has_value());
    EXPECT_FALSE(parse_readiness(R"({"copper":"other","ready":1,"nodes":1})").has_value());
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1})").has_value());
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":"x","nodes":1})").has_value());
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1,"nodes":1,"failed":[3]})").has_value());
    EXPECT_FALSE(parse_readiness(R"({"copper":"ready","ready":1,"nodes":)").has_value());
}

TEST(ReadyReader, TakesTextInAnyPieces) {
    const std::string text = "hello\n" + three_of_four + "\nworld\n";
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
        ReadyReader reader;
        std::optional<Readiness> last;
        for (std::size_t at = 0; at < text.size(); at += piece) {
            if (auto readiness = reader.feed(std::string_view(text).substr(at, piece))) {
                last = readiness;
            }
        }
        EXPECT_EQ(last, parse_readiness(three_of_four)) << piece;
        EXPECT_EQ(reader.tail(), (std::vector<std::string>{"hello", "world"})) << piece;
    }
}

TEST(ReadyReader, KeepsTheLastLinesOnly) {
    ReadyReader reader;
    for (int i = 0; i < 100; ++i) {
        reader.feed("line " + std::to_string(i) + "\n");
    }
    EXPECT_EQ(reader.tail().size(), 20U);
    EXPECT_EQ(reader.tail().back(), "line 99");
}

TEST(Explanation, OfDaemonsThatDoNotFindEachOtherNamesLauncherAndMpi) {
    Plan plan;
    plan.launcher.family = Family::slurm;
    plan.launcher.program = "srun";
    plan.launcher.mpi_plugin = "pmi2";
    plan.placement.hosts = {"cn1", "cn2"};
    LaunchOutcome outcome;
    outcome.end = LaunchEnd::reported;
    outcome.readiness.emplace().nodes = 1;
    const auto said = explanation(outcome, plan, {});
    EXPECT_EQ(
        said.substr(0, said.find('\n')),
        std::string("the daemons do not find each other: one sees 1 of 2 nodes (copperd is built with ") +
            name_of(built_with()) + "; does srun with --mpi=pmi2 start programs of this MPI?)");
}

}  // namespace
}  // namespace copper::cli
