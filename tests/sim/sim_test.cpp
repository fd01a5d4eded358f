// Random jobs under random orders and faults. A failure prints its seed; COPPER_SIM_SEED=<seed> runs that one
// alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/sim/simulation.hpp"

namespace copper::sim {
namespace {

std::vector<std::uint64_t> seeds(std::uint64_t count) {
    if (const char* one = std::getenv("COPPER_SIM_SEED")) {
        return {std::strtoull(one, nullptr, 10)};
    }
    if (const char* many = std::getenv("COPPER_SIM_SEEDS")) {
        count = std::strtoull(many, nullptr, 10);
    }
    std::vector<std::uint64_t> result;
    for (std::uint64_t seed = 1; seed <= count; ++seed) {
        result.push_back(seed);
    }
    return result;
}

std::string replay(const Scenario& scenario) {
    return describe(scenario) + "\nreplay: COPPER_SIM_SEED=" + std::to_string(scenario.seed) +
           " build/tests/sim/sim_tests --gtest_filter=" +
           ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "." +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

void expect_right(const Report& report) {
    EXPECT_EQ(report.unfinished, 0U);
    EXPECT_EQ(report.pending_left, 0U);
    for (const std::string& what : report.wrong) {
        ADD_FAILURE() << "wrong: " << what;
    }
}

// Invariants 1 and 2: without faults each object is read once by the whole job, and an absent name costs
// nothing.
TEST(Simulation, EveryObjectIsReadOnce) {
    for (const std::uint64_t seed : seeds(150)) {
        const Scenario scenario = random_scenario(seed, Faults::none);
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        EXPECT_EQ(report.direct_reads, 0U);
        EXPECT_EQ(report.retries, 0U);
        EXPECT_EQ(report.duplicates, 0U);
        for (const auto& [key, count] : report.reads) {
            EXPECT_EQ(count, 1U) << to_string(key);
            EXPECT_NE(key.kind, ObjectKind::entry) << "a lookup must be answered from the Listing";
        }
        for (const std::size_t answers : report.roll_calls) {
            EXPECT_EQ(answers, scenario.nodes);
        }
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// Invariants 4, 5 and 7: whatever is lost, damaged, crashed, changed or does not fit, every operation of a
// live node ends, in time, with the right bytes of one version.
TEST(Simulation, FaultsCostOnlyTime) {
    for (const std::uint64_t seed : seeds(300)) {
        const Scenario scenario = random_scenario(seed, Faults::all);
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        // An operation needs two objects at most; each waits for its deadline and a read at most, and for its
        // own node.
        EXPECT_LE(report.slowest, 2 * (scenario.deadline + scenario.read_delay_max) +
                                      scenario.pauses * scenario.pause_max + milliseconds(1));
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// Nobody is told of a crash: whoever waits for the node finds out, and asks another one. So no operation
// waits for its deadline, and no node reads the backing filesystem out of turn.
TEST(Simulation, ACrashIsFoundOutLongBeforeTheDeadline) {
    for (const std::uint64_t seed : seeds(100)) {
        Scenario scenario = random_scenario(seed, Faults::none);
        scenario.nodes += 2;
        scenario.crashes = static_cast<std::uint32_t>(1 + seed % 2);
        scenario.deadline = milliseconds(30000);
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        EXPECT_EQ(report.direct_reads, 0U);
        // One second for each lost node that an operation comes upon.
        EXPECT_LE(report.slowest, milliseconds(1100) * scenario.crashes * 2 + milliseconds(500));
        for (const std::size_t answers : report.roll_calls) {
            EXPECT_GE(answers + scenario.crashes, scenario.nodes);
        }
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// A node that is stopped for a while is taken for lost, and comes back: nobody reads in its stead out of
// turn, and it need not wait for its own deadlines.
TEST(Simulation, APausedNodeCostsOnlyItsPause) {
    for (const std::uint64_t seed : seeds(100)) {
        Scenario scenario = random_scenario(seed, Faults::none);
        scenario.nodes += 2;
        scenario.pauses = static_cast<std::uint32_t>(1 + seed % 2);
        scenario.deadline = milliseconds(60000);
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        EXPECT_EQ(report.direct_reads, 0U);
        EXPECT_LE(report.slowest,
                  scenario.pauses * (scenario.pause_max + milliseconds(2200)) + milliseconds(500));
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// Caches that hold a part of what the job reads: what one node has dropped it gets back from others. No node
// reads out of turn, and the filesystem serves no more than if each node's part were all there is.
TEST(Simulation, WhatLeavesACacheIsGotBackFromOthers) {
    for (const std::uint64_t seed : seeds(100)) {
        Scenario scenario = random_scenario(seed, Faults::none);
        scenario.nodes = 4 + seed % 8;
        scenario.clients_per_node = 2;
        scenario.operations_per_client = 200;
        scenario.store = {.directories = 4, .files_per_directory = 20, .file_bytes_max = 20000};
        scenario.cache_budget_bytes = 400'000;  // about half of the files
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        EXPECT_EQ(report.direct_reads, 0U);
        EXPECT_GT(report.got_back, 0U);
        std::uint64_t reads = 0;
        for (const auto& [key, count] : report.reads) {
            reads += count;
        }
        EXPECT_LE(reads, report.reads.size() * 3 / 2);
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// Slow links delay those behind them, and nobody else.
TEST(Simulation, ASlowNodeSlowsOnlyWhatItMust) {
    for (const std::uint64_t seed : seeds(30)) {
        Scenario scenario = random_scenario(seed, Faults::none);
        scenario.nodes = 4 + seed % 8;
        scenario.clients_per_node = 1;
        scenario.operations_per_client = 20;
        scenario.store = {.directories = 2, .files_per_directory = 4, .file_bytes_max = 4 * extent_bytes};
        scenario.slow_nodes = 1 + seed % 2;
        scenario.slow_bytes_per_ms = 20'000;
        scenario.deadline = milliseconds(20000);
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        EXPECT_EQ(report.direct_reads, 0U);
        for (const auto& [key, count] : report.reads) {
            EXPECT_EQ(count, 1U) << to_string(key);
        }
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// Nodes that read different files end up with reading them by themselves: right bytes, whatever goes wrong.
TEST(Simulation, FilesThatNobodySharesAreReadByWhoWantsThem) {
    for (const std::uint64_t seed : seeds(60)) {
        for (const Faults faults : {Faults::none, Faults::all}) {
            Scenario scenario = random_scenario(seed, faults);
            scenario.nodes = 4 + seed % 4;
            scenario.crashes = std::min(scenario.crashes, 2U);
            scenario.crashes_noticed = std::min(scenario.crashes_noticed, scenario.crashes);
            scenario.clients_per_node = 1;
            scenario.operations_per_client = 40;
            scenario.reads = Scenario::Reads::own_files;
            scenario.store = {.directories = 1, .files_per_directory = 8, .file_bytes_max = 2 * extent_bytes};
            SCOPED_TRACE(replay(scenario));
            const Report report = Simulation(scenario).run();
            expect_right(report);
            if (faults == Faults::none) {
                EXPECT_GT(report.unshared_reads, 0U);
                EXPECT_EQ(report.direct_reads, 0U);
            }
            if (::testing::Test::HasFailure()) {
                return;
            }
        }
    }
}

TEST(Simulation, ASeedReplaysExactly) {
    for (const std::uint64_t seed : seeds(10)) {
        for (const Faults faults : {Faults::none, Faults::all}) {
            const Scenario scenario = random_scenario(seed, faults);
            EXPECT_EQ(Simulation(scenario).run().trace, Simulation(scenario).run().trace)
                << describe(scenario);
        }
    }
}

// Each object crosses each link of its tree once: the traffic of N nodes is N - 1 copies, no more.
TEST(Simulation, BroadcastSendsEachObjectOncePerNode) {
    for (const std::uint32_t nodes : {2U, 10U, 100U, 1000U}) {
        Scenario scenario{
            .nodes = nodes, .readers = nodes, .clients_per_node = 1, .operations_per_client = 5};
        scenario.store = {.directories = 2, .files_per_directory = 3, .file_bytes_max = 100};
        SCOPED_TRACE(replay(scenario));
        const Report report = Simulation(scenario).run();
        expect_right(report);
        EXPECT_EQ(report.duplicates, 0U);
        const std::uint64_t roll_call_messages = report.roll_calls.size() * 2 * (nodes - 1);
        const std::uint64_t publications = report.reads.size() * (nodes - 1);
        // Interests: at most one from each node for each object.
        EXPECT_LE(report.messages, roll_call_messages + 2 * publications);
        EXPECT_GE(report.messages, publications);
    }
}

}  // namespace
}  // namespace copper::sim
