// A recorded import of scipy.stats, on simulated nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/sim/import_simulation.hpp"

namespace copper::sim {
namespace {

const ImportTrace& trace() {
    static const ImportTrace read = read_trace(COPPER_TRACES "/scipy.stats.json.gz").value();
    return read;
}

ImportScenario on_lustre(std::uint32_t nodes) {
    return {.nodes = nodes, .filesystem = bench::find_model("lustre").value()};
}

std::uint64_t count_of(const ImportReport& report, Operation operation) {
    return report.operations[static_cast<std::size_t>(operation)];
}

void expect_right(const ImportReport& report) {
    EXPECT_EQ(report.wrong, 0U);
    EXPECT_EQ(report.direct_reads, 0U);
    EXPECT_EQ(report.most_reads_of_an_object, 1U);
}

TEST(Import, CostsTheFilesystemTheSameHoweverManyNodesTakePart) {
    const ImportReport alone = import_through_copper(trace(), on_lustre(1));
    expect_right(alone);
    EXPECT_EQ(count_of(alone, Operation::opendir), trace().directories.size());
    EXPECT_EQ(count_of(alone, Operation::readdir), trace().directories.size());
    EXPECT_LE(alone.all_operations(), trace().requests.size() * 11 / 10);
    for (const std::uint32_t nodes : {2U, 4U, 8U}) {
        SCOPED_TRACE(nodes);
        const ImportReport report = import_through_copper(trace(), on_lustre(nodes));
        expect_right(report);
        // Each reader's client looks up the directories on the way for itself.
        for (std::size_t operation = 0; operation < report.operations.size(); ++operation) {
            if (operation != static_cast<std::size_t>(Operation::lookup)) {
                EXPECT_EQ(report.operations[operation], alone.operations[operation])
                    << bench::operation_names[operation];
            }
        }
        EXPECT_EQ(report.bytes_read, alone.bytes_read);
        EXPECT_LE(report.all_operations(), trace().requests.size() * 6 / 5);
    }
}

TEST(Import, DirectlyCostsEachNodeAll) {
    ImportScenario scenario = on_lustre(3);
    const ImportReport report = import_directly(trace(), scenario);
    EXPECT_EQ(report.all_operations(), 3 * trace().requests.size());
    scenario.processes = 12;
    const ImportReport storm = import_directly(trace(), scenario);
    EXPECT_EQ(count_of(storm, Operation::open), 12 * count_of(report, Operation::open));
    EXPECT_EQ(count_of(storm, Operation::lookup), count_of(report, Operation::lookup));
}

TEST(Import, WithAProfileIsFasterAndReadsEachObjectOnce) {
    const ImportScenario scenario = on_lustre(16);
    const ImportReport first = import_through_copper(trace(), scenario);
    const ImportReport replayed = import_through_copper(trace(), scenario, first.recorded);
    expect_right(replayed);
    EXPECT_LT(replayed.duration, first.duration);
    EXPECT_LT(first.duration, import_directly(trace(), scenario).duration);
}

TEST(Import, InPartsReadsEachObjectOnce) {
    ImportScenario scenario = on_lustre(16);
    scenario.parts = 4;
    const ImportReport first = import_through_copper(trace(), scenario);
    expect_right(first);
    EXPECT_EQ(first.recorded.size(), scenario.parts);
    expect_right(import_through_copper(trace(), scenario, first.recorded));
}

TEST(Import, PartsMakeAJobSlower) {
    ImportScenario scenario = on_lustre(16);
    const ImportReport whole = import_through_copper(trace(), scenario);
    for (const std::size_t parts : {2U, 4U, 16U, 32U}) {
        scenario.parts = parts;
        EXPECT_GE(import_through_copper(trace(), scenario).duration, whole.duration) << parts;
    }
}

TEST(Import, AHitTakesItsTime) {
    ImportScenario scenario = on_lustre(2);
    scenario.hit_lookup = scenario.hit_read = std::chrono::nanoseconds(0);
    const ImportReport free = import_through_copper(trace(), scenario);
    scenario.hit_lookup = std::chrono::microseconds(100);
    const auto lookups = static_cast<std::uint64_t>(
        std::count_if(trace().requests.begin(), trace().requests.end(),
                      [](const auto& request) { return request.operation == Operation::lookup; }));
    // Some are made at once.
    EXPECT_GE(import_through_copper(trace(), scenario).duration,
              free.duration + lookups / 2 * std::chrono::microseconds(100));
}

TEST(Import, AStragglerIsWaitedForByNobody) {
    ImportScenario scenario = on_lustre(16);
    const ImportReport equal = import_through_copper(trace(), scenario);
    scenario.nodes_per_straggler = 16;
    scenario.straggler = 3;
    const ImportReport report = import_through_copper(trace(), scenario);
    expect_right(report);
    EXPECT_GT(report.duration, trace().duration * 2);
    EXPECT_LT(report.median, equal.median * 11 / 10);
}

TEST(Import, ASeedReplaysExactly) {
    ImportScenario scenario = on_lustre(8);
    const ImportReport report = import_through_copper(trace(), scenario);
    EXPECT_EQ(import_through_copper(trace(), scenario).history, report.history);
    ++scenario.seed;
    EXPECT_NE(import_through_copper(trace(), scenario).history, report.history);
}

TEST(Import, EndsWhereRequestsTookNoTime) {
    ImportTrace at_once = trace();
    for (auto& request : at_once.requests) {
        request.took = std::chrono::microseconds(0);
    }
    expect_right(import_through_copper(at_once, on_lustre(3)));
}

TEST(Import, ATraceThatIsNoneIsRefused) {
    EXPECT_FALSE(read_trace("/dev/null").has_value());
    EXPECT_FALSE(read_trace("/dev/null/none").has_value());
}

}  // namespace
}  // namespace copper::sim
