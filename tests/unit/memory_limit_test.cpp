#include "daemon/control/memory_limit.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/support/temporary_directory.hpp"

namespace copper {
namespace {

constexpr auto none = std::numeric_limits<std::uint64_t>::max();

class MemoryLimit : public testing::Test {
  protected:
    void put(const std::string& path, const std::string& text) {
        const std::filesystem::path file = root() + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    std::string root() const { return directory_.path(); }

  private:
    const test::TemporaryDirectory directory_;
};

TEST_F(MemoryLimit, OfTheGroupAndOfThoseAboveIt) {
    put("/slurm/memory.max", "2000000\n");
    put("/slurm/job/memory.max", "1000000\n");
    put("/slurm/job/step/memory.max", "max\n");
    EXPECT_EQ(control_group_limit_bytes("0::/slurm/job/step\n", root()), 1000000U);
    EXPECT_EQ(control_group_limit_bytes("0::/slurm\n", root()), 2000000U);
    EXPECT_EQ(control_group_limit_bytes("0::/\n", root()), none);
    put("/memory.max", "5\n");
    EXPECT_EQ(control_group_limit_bytes("0::/\n", root()), 5U);
}

TEST_F(MemoryLimit, OfTheFirstVersionToo) {
    put("/memory/job/memory.limit_in_bytes", "3000000\n");
    put("/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(control_group_limit_bytes("12:cpu,cpuacct:/job\n5:memory,hugetlb:/job/x\n0::/job\n", root()),
              3000000U);
    EXPECT_EQ(control_group_limit_bytes("12:cpu,memories:/job\n", root()), none);
}

TEST_F(MemoryLimit, NonsenseLimitsNothing) {
    for (const char* text : {"", "\n", ":", "::", "0::", "0::relative", "memory", "5:memory"}) {
        EXPECT_EQ(control_group_limit_bytes(text, root()), none) << text;
    }
    put("/job/memory.max", "");
    EXPECT_EQ(control_group_limit_bytes("0::/job", root()), none);
}

TEST_F(MemoryLimit, ThisProcessMayUseSome) {
    EXPECT_GT(memory_limit_bytes(), 0U);
    EXPECT_LT(memory_limit_bytes(), none);
}

}  // namespace
}  // namespace copper
