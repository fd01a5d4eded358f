// The model of a parallel filesystem's servers (bench/slow_filesystem).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "bench/slow_filesystem/model.hpp"
#include "bench/slow_filesystem/shared_state.hpp"
#include "bench/slow_filesystem/timetable.hpp"
#include "tests/support/temporary_directory.hpp"

namespace copper::bench {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(SlowModel, NothingTakesTimeInTheFastModel) {
    SharedQueues shared;
    Servers servers(*find_model("fast"), shared);
    EXPECT_EQ(seconds(5), servers.metadata(seconds(5)));
    EXPECT_EQ(seconds(5), servers.data(seconds(5), 1 << 20));
}

TEST(SlowModel, AllClientsShareTheMetadataServers) {
    SharedQueues shared;
    const Model model{.metadata_latency = milliseconds(2), .metadata_rate = 1'000};
    Servers one(model, shared), other(model, shared);
    EXPECT_EQ(milliseconds(2), one.metadata(milliseconds(0)));
    EXPECT_EQ(milliseconds(3), other.metadata(milliseconds(0)));
    EXPECT_EQ(milliseconds(4), one.metadata(milliseconds(0)));
    // What was not used is lost: the queue does not begin before a request is there.
    EXPECT_EQ(milliseconds(102), other.metadata(milliseconds(100)));
    EXPECT_EQ(milliseconds(103), one.metadata(milliseconds(100)));
}

TEST(SlowModel, EachClientHasItsOwnBandwidth) {
    SharedQueues shared;
    const Model model{.data_latency = milliseconds(1), .client_bandwidth = 1e9};
    Servers one(model, shared), other(model, shared);
    EXPECT_EQ(milliseconds(2), one.data(milliseconds(0), 1'000'000));
    EXPECT_EQ(milliseconds(3), one.data(milliseconds(0), 1'000'000));
    EXPECT_EQ(milliseconds(2), other.data(milliseconds(0), 1'000'000));
    EXPECT_EQ(milliseconds(1), other.metadata(milliseconds(1)));
}

TEST(SlowModel, AllClientsShareTheTotalBandwidth) {
    SharedQueues shared;
    const Model model{.client_bandwidth = 1e9, .total_bandwidth = 1e9};
    Servers one(model, shared), other(model, shared);
    EXPECT_EQ(milliseconds(1), one.data(milliseconds(0), 1'000'000));
    EXPECT_EQ(milliseconds(2), other.data(milliseconds(0), 1'000'000));
}

// How long each of many operations takes that do not wait for each other.
std::vector<Nanoseconds> times_of_operations(const Model& model, int count) {
    SharedQueues shared;
    Servers servers(model, shared);
    std::vector<Nanoseconds> taken;
    for (int number = 0; number < count; ++number) {
        const Nanoseconds now = seconds(number);
        taken.push_back(servers.metadata(now) - now);
    }
    return taken;
}

TEST(SlowModel, TheSameShareStallsInEachRun) {
    constexpr int operations = 100'000;
    const auto taken = times_of_operations(*find_model("stalling"), operations);
    const auto stalled = std::count(taken.begin(), taken.end(), seconds(1) + microseconds(700));
    EXPECT_EQ(operations - stalled, std::count(taken.begin(), taken.end(), microseconds(700)));
    EXPECT_NEAR(0.01 * operations, static_cast<double>(stalled), 0.001 * operations);
    EXPECT_EQ(taken, times_of_operations(*find_model("stalling"), operations));
}

TEST(SlowModel, PresetsSayWhereTheyAreFrom) {
    for (const Preset& preset : presets()) {
        EXPECT_FALSE(preset.source.empty());
        EXPECT_TRUE(find_model(std::string(preset.name)).has_value());
    }
    EXPECT_EQ(microseconds(700), find_model("lustre")->metadata_latency);
}

TEST(SlowModel, FileIsRead) {
    const auto model = parse_model(
        "metadata_latency_ms = 0.5\nmetadata_operations_per_second = 100\ndata_latency_ms = 2\n"
        "client_bytes_per_second = 1e9\ntotal_bytes_per_second = 2e9\nstall_share = 0.5\nstall_ms = 10\nseed "
        "= 7\n",
        "site.toml");
    ASSERT_TRUE(model) << model.error();
    EXPECT_EQ(microseconds(500), model->metadata_latency);
    EXPECT_EQ(100, model->metadata_rate);
    EXPECT_EQ(milliseconds(2), model->data_latency);
    EXPECT_EQ(1e9, model->client_bandwidth);
    EXPECT_EQ(2e9, model->total_bandwidth);
    EXPECT_EQ(0.5, model->stall_share);
    EXPECT_EQ(milliseconds(10), model->stall_time);
    EXPECT_EQ(7U, model->seed);
}

TEST(SlowModel, NonsenseIsRefusedByName) {
    for (const auto& [text, key, value] : std::vector<std::array<const char*, 3>>{
             {"metadata_latency_ms = -3", "metadata_latency_ms", "-3"},
             {"metadata_latency_ms = nan", "metadata_latency_ms", "nan"},
             {"data_latency_ms = inf", "data_latency_ms", "inf"},
             {"metadata_operations_per_second = 'many'", "metadata_operations_per_second", "many"},
             {"stall_share = 1.5", "stall_share", "1.5"},
             {"stall_ms = true", "stall_ms", "true"},
             {"client_bytes_per_second = -1", "client_bytes_per_second", "-1"},
             {"latency = 1", "latency", "no such key"},
             {"seed = 1\nseed = 2", "site.toml:2", "seed"}}) {
        const auto model = parse_model(text, "site.toml");
        ASSERT_FALSE(model) << text;
        EXPECT_THAT(model.error(), HasSubstr("site.toml"));
        EXPECT_THAT(model.error(), HasSubstr(key));
        EXPECT_THAT(model.error(), HasSubstr(value));
    }
    EXPECT_THAT(find_model("no-such-model").error(), HasSubstr("lustre"));
}

TEST(SlowModel, SharedFileCountsEachClient) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/shared";
    EXPECT_FALSE(find_shared_state(path));
    const auto one = open_shared_state(path);
    const auto other = open_shared_state(path);
    ASSERT_TRUE(one && other);
    ++(*add_client(**one))->operations[static_cast<std::size_t>(Operation::open)];
    (*add_client(**other))->bytes_read += 5;
    const std::string counters = counters_json(**find_shared_state(path));
    EXPECT_THAT(counters, testing::MatchesRegex(".*\"open\":1,.*\"open\":0,.*\"bytes_read\":5.*"));
    for (std::size_t client = 2; client < clients_max; ++client) {
        EXPECT_TRUE(add_client(**one));
    }
    EXPECT_THAT(add_client(**one).error(), HasSubstr("256"));
}

TEST(SlowModel, AnotherFileIsNotTakenForASharedOne) {
    const test::TemporaryDirectory directory;
    const std::string path = directory.path() + "/other";
    std::ofstream(path) << "something else";
    EXPECT_THAT(open_shared_state(path).error(), HasSubstr(path));
}

TEST(Timetable, CallsInTheOrderOfTheTimes) {
    std::vector<int> called;
    {
        Timetable timetable;
        const auto start = Timetable::Clock::now();
        timetable.call_at(start + milliseconds(20), [&] { called.push_back(2); });
        timetable.call_at(start + milliseconds(10), [&] { called.push_back(1); });
        timetable.call_at(start + seconds(1000), [&] { called.push_back(4); });
        timetable.call_at(start + milliseconds(20), [&] { called.push_back(3); });
    }
    EXPECT_EQ((std::vector<int>{1, 2, 3, 4}), called);
}

}  // namespace
}  // namespace copper::bench
