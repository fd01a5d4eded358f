#include "daemon/readiness.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace copper {
namespace {

using nlohmann::json;
using Outcome = ReadyState::Outcome;

std::string name_of(Rank rank) {
    return "cn" + std::to_string(rank.value);
}

ProgressLoop::Parts three_of_four() {
    return {{Rank{0}, to_text({.error = ""})},
            {Rank{1}, to_text({.error = ""})},
            {Rank{3}, to_text({.error = ""})}};
}

TEST(Readiness, AsksAgainAsLongAsNodesAreMissing) {
    const auto state = ready_state(three_of_four(), {.nodes = 4}, Look::again, name_of);
    EXPECT_EQ(state.outcome, Outcome::undecided);
    EXPECT_EQ(json::parse(state.line),
              json::parse(R"({"copper": "ready", "ready": 3, "nodes": 4, "failed": [],
                                                       "missing": ["cn2"], "done": false, "serves": false})"));
}

TEST(Readiness, NodesThatStayMissingAreAFailure) {
    const auto state = ready_state(three_of_four(), {.nodes = 4}, Look::last, name_of);
    EXPECT_EQ(state.outcome, Outcome::failed);
    EXPECT_EQ(json::parse(state.line)["missing"], json({"cn2"}));
    EXPECT_EQ(json::parse(state.line)["done"], true);
}

TEST(Readiness, AllReady) {
    auto parts = three_of_four();
    parts.push_back({Rank{2}, to_text({.error = ""})});
    const auto state = ready_state(parts, {.nodes = 4}, Look::again, name_of);
    EXPECT_EQ(state.outcome, Outcome::ready);
    EXPECT_EQ(json::parse(state.line)["ready"], 4);
}

TEST(Readiness, FailedNodesAreNamed) {
    auto parts = three_of_four();
    parts.push_back({Rank{2}, to_text({.error = "no \"fuse\""})});
    const auto state = ready_state(parts, {.nodes = 4}, Look::again, name_of);
    EXPECT_EQ(state.outcome, Outcome::failed);
    EXPECT_EQ(json::parse(state.line)["failed"],
              json::parse(R"([{"host": "cn2", "reason": "no \"fuse\""}])"));
    EXPECT_EQ(json::parse(state.line)["ready"], 3);
}

TEST(Readiness, TheOtherJobThatHasTheMountIsNamed) {
    const ReadyAnswer answer{
        .error = "served", .batch_job = "17", .batch_run = "1", .launch = "5eed", .is_served = true};
    const auto state = ready_state({{Rank{0}, to_text(answer)}}, {.nodes = 1}, Look::again, name_of);
    EXPECT_EQ(
        json::parse(state.line)["failed"],
        json::parse(
            R"([{"host": "cn0", "reason": "served", "batch_job": "17", "batch_run": "1", "launch": "5eed",
                               "is_served": true}])"));
}

TEST(Readiness, PlacesOfOthersAreTold) {
    const auto state = ready_state({{Rank{0}, to_text({.error = "a", .taken = Taken::mount})},
                                    {Rank{1}, to_text({.error = "b", .taken = Taken::private_directory})}},
                                   {.nodes = 2}, Look::again, name_of);
    EXPECT_EQ(json::parse(state.line)["failed"],
              json::parse(R"([{"host": "cn0", "reason": "a", "taken": "mount"},
                              {"host": "cn1", "reason": "b", "taken": "private_directory"}])"));
}

TEST(Readiness, SomeMayLackAMirror) {
    auto parts = three_of_four();
    EXPECT_EQ(ready_state(parts, {.nodes = 4, .missing_max = 1}, Look::again, name_of).outcome,
              Outcome::undecided);
    EXPECT_EQ(ready_state(parts, {.nodes = 4, .missing_max = 1}, Look::last, name_of).outcome,
              Outcome::ready);
    parts.push_back({Rank{2}, to_text({.error = "no fuse"})});
    const auto state = ready_state(parts, {.nodes = 4, .missing_max = 1}, Look::again, name_of);
    EXPECT_EQ(state.outcome, Outcome::ready);
    EXPECT_EQ(json::parse(state.line)["serves"], true);
    EXPECT_EQ(json::parse(state.line)["ready"], 3);
    parts.back().text = to_text({.error = "not mine", .taken = Taken::mount});
    EXPECT_EQ(ready_state(parts, {.nodes = 4, .missing_max = 1}, Look::last, name_of).outcome,
              Outcome::failed);
    parts.back().text = to_text({.error = "served", .launch = "5eed"});
    EXPECT_EQ(ready_state(parts, {.nodes = 4, .missing_max = 1}, Look::last, name_of).outcome,
              Outcome::failed);
}

TEST(Readiness, NotMoreThanMay) {
    auto parts = three_of_four();
    parts.pop_back();
    EXPECT_EQ(ready_state(parts, {.nodes = 4, .missing_max = 1}, Look::last, name_of).outcome,
              Outcome::failed);
    EXPECT_EQ(ready_state(parts, {.nodes = 4, .missing_max = 2}, Look::last, name_of).outcome,
              Outcome::ready);
}

TEST(Readiness, OneNodeMustServe) {
    const auto state = ready_state({{Rank{0}, to_text({.error = "no fuse"})}}, {.nodes = 1, .missing_max = 9},
                                   Look::again, name_of);
    EXPECT_EQ(state.outcome, Outcome::failed);
}

TEST(Readiness, NonsenseIsAFailureOfThatNode) {
    for (const char* text : {"", "17", "{\"host\":1}", "{\"error\":[]}"}) {
        const auto state = ready_state({{Rank{0}, text}}, {.nodes = 1}, Look::again, name_of);
        EXPECT_EQ(state.outcome, Outcome::failed) << text;
    }
}

}  // namespace
}  // namespace copper
