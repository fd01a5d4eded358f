// Which seeds a test runs. A failure prints its seed; COPPER_SIM_SEED=<seed> runs that one alone.
// COPPER_SIM_FIRST=<seed> begins elsewhere than with seed 1.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/sim/simulation.hpp"

namespace copper::sim {

// Tests with so few seeds take long with each: of 100 seeds that are asked for, they run these few.
inline constexpr std::uint64_t few_seeds = 10;

inline std::vector<std::uint64_t> seeds(std::uint64_t count) {
    if (const char* one = std::getenv("COPPER_SIM_SEED")) {
        return {std::strtoull(one, nullptr, 10)};
    }
    if (const char* many = std::getenv("COPPER_SIM_SEEDS")) {
        const std::uint64_t asked = std::strtoull(many, nullptr, 10);
        count = count > few_seeds ? asked : std::max<std::uint64_t>(asked * count / 100, 1);
    }
    const char* given = std::getenv("COPPER_SIM_FIRST");
    std::vector<std::uint64_t> result(count);
    std::iota(result.begin(), result.end(), given != nullptr ? std::strtoull(given, nullptr, 10) : 1);
    return result;
}

// Up to the first one that fails.
inline void for_each_seed(std::uint64_t count, const std::function<void(std::uint64_t)>& check) {
    for (const std::uint64_t seed : seeds(count)) {
        check(seed);
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
}

// For jobs that take long with each node.
inline Scenario random_scenario_of_few_nodes(std::uint64_t seed, Faults faults) {
    Scenario scenario = random_scenario(seed, faults);
    scenario.nodes = std::min(scenario.nodes, 20U);
    scenario.readers = std::min<std::size_t>(scenario.readers, scenario.nodes);
    scenario.crashes = std::min(scenario.crashes, scenario.nodes - 1);
    scenario.crashes_noticed = std::min(scenario.crashes_noticed, scenario.crashes);
    scenario.slow_disks = std::min(scenario.slow_disks, scenario.nodes);
    scenario.slow_nodes = std::min(scenario.slow_nodes, scenario.nodes);
    return scenario;
}

inline constexpr std::array troubles = {Trouble::never_mounted, Trouble::submount_never_mounted,
                                        Trouble::unmounted,     Trouble::submount_unmounted,
                                        Trouble::stale,         Trouble::io_error,
                                        Trouble::ticket_expired};

// Beside two nodes at least that have theirs.
inline void break_a_mount(Scenario& scenario) {
    scenario.nodes = std::min(scenario.nodes, 40U) + 2;
    scenario.readers = std::max<std::size_t>(scenario.readers, 2);
    scenario.broken_mounts = 1;
    scenario.trouble = troubles.at(scenario.seed / 2 % troubles.size());
}

inline std::string replay(const Scenario& scenario) {
    return describe(scenario) + "\nreplay: COPPER_SIM_SEED=" + std::to_string(scenario.seed) +
           " build/tests/sim/sim_tests --gtest_filter=" +
           ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "." +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

// By themselves, broken mounts give wrong answers.
enum class BrokenMounts { read_for_nobody, read_for_themselves };
inline void expect_right(const Report& report, BrokenMounts broken = BrokenMounts::read_for_nobody) {
    EXPECT_TRUE(report.has_settled) << report.messages << " messages";
    EXPECT_EQ(report.unfinished, 0U);
    EXPECT_EQ(report.pending_left, 0U);
    for (const std::string& what : report.wrong) {
        ADD_FAILURE() << "wrong: " << what;
    }
    if (broken == BrokenMounts::read_for_nobody) {
        EXPECT_EQ(report.wrong_of_broken_mounts, std::vector<std::string>());
    }
}

}  // namespace copper::sim
