#include "fuse/record_index.hpp"

#include <gtest/gtest.h>

#include <random>
#include <unordered_set>

namespace copper {
namespace {

// Positions that are their own keys; many have the same hash.
struct Hash {
    std::uint64_t divisor;
    std::uint64_t operator()(InodeRecords::Position position) const { return position / divisor; }
};

TEST(RecordIndex, FindsWhatIsThereAndNothingElse) {
    for (const std::uint64_t divisor : {1U, 5U, 400U}) {
        const Hash hash{divisor};
        RecordIndex<Hash> index(hash);
        std::unordered_set<InodeRecords::Position> present;
        std::mt19937 random(divisor);
        for (int turn = 0; turn < 40'000; ++turn) {
            // More and more, then fewer and fewer.
            const auto position = static_cast<InodeRecords::Position>(random() % 6000 + 1);
            const bool grows = turn < 20'000;
            if (present.contains(position) && (!grows || random() % 4 == 0)) {
                index.erase(position);
                present.erase(position);
            } else if (!present.contains(position) && (grows || random() % 4 == 0)) {
                index.insert(position);
                present.insert(position);
            }
            ASSERT_EQ(index.size(), present.size());
        }
        for (InodeRecords::Position position = 1; position <= 6000; ++position) {
            const auto found =
                index.find(hash(position), [&](InodeRecords::Position there) { return there == position; });
            ASSERT_EQ(found, present.contains(position) ? position : 0U);
        }
        index.clear();
        EXPECT_EQ(index.size(), 0U);
        EXPECT_EQ(index.find(hash(1), [](InodeRecords::Position) { return true; }), 0U);
    }
}

}  // namespace
}  // namespace copper
