#include "daemon/pinning.hpp"

#include <gtest/gtest.h>
#include <hwloc.h>

#include <memory>
#include <string>

namespace copper {
namespace {

struct Destroy {
    void operator()(hwloc_topology_t machine) const { hwloc_topology_destroy(machine); }
};
using Machine = std::unique_ptr<hwloc_topology, Destroy>;

// As hwloc(7) describes a synthetic topology. `allowed`: the threads that the process may use; empty: all.
Machine machine(const std::string& description, const std::string& allowed = "") {
    hwloc_topology_t made = nullptr;
    hwloc_topology_init(&made);
    EXPECT_EQ(hwloc_topology_set_synthetic(made, description.c_str()), 0);
    EXPECT_EQ(hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED), 0);
    EXPECT_EQ(hwloc_topology_load(made), 0);
    if (!allowed.empty()) {
        hwloc_bitmap_t threads = hwloc_bitmap_alloc();
        EXPECT_EQ(hwloc_bitmap_list_sscanf(threads, allowed.c_str()), 0);
        EXPECT_EQ(hwloc_topology_allow(made, threads, nullptr, HWLOC_ALLOW_FLAG_CUSTOM), 0);
        hwloc_bitmap_free(threads);
    }
    return Machine(made);
}

std::string choose(const std::string& description, const std::string& job, const std::string& near = "") {
    return choose_cores("auto", machine(description).get(), near, {{"NCPUS", job}}).value();
}

constexpr const char* eight = "core:8 pu:1";
// Linux numbers the first thread of each core before the second ones.
constexpr const char* eight_of_two_threads = "core:8 pu:2(indexes=2*8:1*2)";
constexpr const char* two_sockets = "pack:2 core:32 pu:2(indexes=2*64:1*2)";

TEST(Pinning, AListIsTakenAsItIs) {
    EXPECT_EQ(choose_cores("1,3-4", machine(eight).get(), "", {}), "1,3-4");
    EXPECT_EQ(choose_cores("4,3,1", machine(eight).get(), "", {}), "1,3-4");
}

TEST(Pinning, CoresThatDoNotExistAreAnError) {
    const Machine small = machine(eight);
    const auto chosen = choose_cores("2,8-9", small.get(), "", {});
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error(),
              "--cores 2,8-9: this machine has no core 8-9, or does not allow it; it has 0-7");
    EXPECT_FALSE(choose_cores("", small.get(), "", {}));
    EXPECT_FALSE(choose_cores("3-", small.get(), "", {}));
    EXPECT_FALSE(choose_cores("x", small.get(), "", {}));
    EXPECT_FALSE(choose_cores("4", machine(eight, "0-3").get(), "", {})) << "it may not use that";
}

TEST(Pinning, None) {
    EXPECT_EQ(choose_cores("none", machine(eight).get(), "", {{"NCPUS", "4"}}), "");
}

TEST(Pinning, AutoTakesTheHighestCoresThatTheJobLeaves) {
    EXPECT_EQ(choose_cores("auto", machine(eight).get(), "", {{"SLURM_CPUS_ON_NODE", "6"}}), "6-7");
    EXPECT_EQ(choose_cores("auto", machine("core:16 pu:1", "0-3,8-11").get(), "",
                           {{"SLURM_JOB_CPUS_PER_NODE", "7(x2)"}}),
              "11");
    EXPECT_EQ(choose(eight, "5"), "5-7");
    EXPECT_EQ(choose("core:128 pu:1", "64"), "120-127");
}

TEST(Pinning, AutoWithoutFreeCoresPinsNothing) {
    EXPECT_EQ(choose_cores("auto", machine(eight).get(), "", {}), "");
    EXPECT_EQ(choose(eight, "8"), "");
    EXPECT_EQ(choose(eight, "9"), "");
    EXPECT_EQ(choose(eight, "many"), "");
    EXPECT_EQ(choose(eight_of_two_threads, "16"), "");
}

TEST(Pinning, AutoTakesAllThreadsOfIdleCoresAndNoneOfUsedOnes) {
    EXPECT_EQ(choose(eight_of_two_threads, "6"), "6-7,14-15");
    EXPECT_EQ(choose(two_sockets, "60"), "60-63,124-127");
}

// 64 of 128 threads are one of each core, or all of half of the cores.
TEST(Pinning, AutoTakesThreadsThatAreFreeInWhateverOrderTheJobFillsCores) {
    EXPECT_EQ(choose(two_sockets, "64"), "120-127");
    EXPECT_EQ(choose(two_sockets, "120"), "124-127");
    EXPECT_EQ(choose(two_sockets, "127"), "127");
}

TEST(Pinning, AutoPrefersIdleCoresNearTheNetwork) {
    EXPECT_EQ(choose(two_sockets, "20", "0-31,64-95"), "28-31,92-95");
    EXPECT_EQ(choose(two_sockets, "20", "32-63,96-127"), "60-63,124-127");
    EXPECT_EQ(choose(two_sockets, "40", "0-31,64-95"), "60-63,124-127") << "none is idle there";
}

TEST(Pinning, ThisMachine) {
    EXPECT_TRUE(pin_process("none"));
    EXPECT_FALSE(pin_process("100000"));
}

}  // namespace
}  // namespace copper
