#include "cache/batch_evidence.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tests/support/directory_object.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

class Evidence : public testing::Test {
  protected:
    bool ask(std::uint64_t position, const std::string& path = "/d") {
        return evidence.judge(path, directory, position) != BatchEvidence::Worth::none;
    }
    // Asks for so many names, one after the other: how many of them were not worth a batch.
    std::uint64_t alone(std::uint64_t first, std::uint64_t count, const std::string& path = "/d") {
        std::uint64_t alone = 0;
        for (std::uint64_t i = first; i < first + count; ++i) {
            alone += ask(i, path) ? 0U : 1U;
        }
        return alone;
    }

    Directory directory = test::directory_of({}, 1, test::slowly);
    BatchEvidence evidence;
};

TEST_F(Evidence, WhoAsksForOneNameAfterTheOtherGetsBatches) {
    EXPECT_EQ(alone(100, 900), BatchEvidence::in_a_row) << "the first of them tells nothing";
    EXPECT_EQ(alone(1000, 1000), 0U) << "that goes on";
}

TEST_F(Evidence, InWhateverDirectionAndWithGaps) {
    for (std::uint64_t i = 0; i < 100; ++i) {
        EXPECT_EQ(ask(10000 - i * BatchEvidence::near), i >= BatchEvidence::in_a_row) << i;
    }
}

TEST_F(Evidence, OneTooFarAwayBeginsAnew) {
    EXPECT_EQ(alone(100, 50), BatchEvidence::in_a_row);
    EXPECT_FALSE(ask(149 + BatchEvidence::near + 1));
    EXPECT_EQ(alone(159, 50), BatchEvidence::in_a_row - 1);
    EXPECT_FALSE(ask(0));
}

TEST_F(Evidence, WhoAsksHereAndThereGetsNone) {
    std::mt19937_64 random(7);
    std::uint64_t worth = 0;
    for (int i = 0; i < 10000; ++i) {
        worth += ask(random() % 100000) ? 1U : 0U;
    }
    EXPECT_EQ(worth, 0U);
}

TEST_F(Evidence, TheSameNameAgainTellsNothing) {
    for (int i = 0; i < 1000; ++i) {
        EXPECT_FALSE(ask(500));
    }
    EXPECT_EQ(alone(501, BatchEvidence::in_a_row), BatchEvidence::in_a_row - 1);
    EXPECT_TRUE(ask(500 + BatchEvidence::in_a_row)) << "nor does it take anything back";
}

TEST_F(Evidence, TwoDirectoriesByTurnsAreTwoRows) {
    for (std::uint64_t i = 0; i < 100; ++i) {
        EXPECT_EQ(ask(1000 + i, "/a"), i >= BatchEvidence::in_a_row) << i;
        EXPECT_EQ(ask(9000 - i, "/b"), i >= BatchEvidence::in_a_row) << i;
    }
}

// What is forgotten costs a few entries, and no more.
TEST_F(Evidence, OfMoreDirectoriesThanItRemembers) {
    EXPECT_EQ(alone(100, 50, "/first"), BatchEvidence::in_a_row);
    for (std::size_t i = 1; i < BatchEvidence::directories_max; ++i) {
        EXPECT_FALSE(ask(100, "/" + std::to_string(i)));
    }
    EXPECT_EQ(alone(150, 50, "/first"), 0U) << "as many as it remembers";
    EXPECT_FALSE(ask(100, "/one more"));
    EXPECT_EQ(alone(200, 50, "/first"), BatchEvidence::in_a_row);
    for (std::size_t i = 0; i < 10 * BatchEvidence::directories_max; ++i) {
        const std::string path = "/many" + std::to_string(i);
        ASSERT_EQ(alone(100, BatchEvidence::in_a_row + 2, path), BatchEvidence::in_a_row) << path;
    }
}

TEST_F(Evidence, NoneIsNeededWhereTheFilesystemAnswersAtOnce) {
    for (const auto time : {0us, BatchEvidence::fast_operation - 1us}) {
        directory.operation_time = time;
        EXPECT_TRUE(BatchEvidence::answers_at_once(directory));
        EXPECT_TRUE(ask(500));
        EXPECT_TRUE(ask(5));
    }
    directory.operation_time = BatchEvidence::fast_operation;
    EXPECT_FALSE(BatchEvidence::answers_at_once(directory));
    EXPECT_FALSE(ask(6));
}

TEST_F(Evidence, CountsForNothingWhereNamesAreLookedUpOneAtATime) {
    directory.is_serial = true;
    EXPECT_EQ(alone(100, 100), 100U);
}

TEST_F(Evidence, NamesThatAreNotProvenAreAskedForAlone) {
    directory.is_proven = false;
    EXPECT_EQ(alone(500, 100), 100U);
    directory.operation_time = 0us;
    EXPECT_FALSE(ask(5));
    EXPECT_FALSE(BatchEvidence::is_worth_batch_at_once(directory));
    directory.is_proven = true;
    EXPECT_TRUE(BatchEvidence::is_worth_batch_at_once(directory));
}

}  // namespace
}  // namespace copper
