#include "daemon/progress_loop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/no_files.hpp"

namespace copper {
namespace {

using namespace std::chrono_literals;

// To it, the loop looks for messages once in each turn. There are none, and no other nodes to ping.
class QuietFabric final : public Fabric {
  public:
    explicit QuietFabric(std::function<void()> on_look) : on_look_(std::move(on_look)) {}

    Rank self() const override { return Rank{0}; }
    std::uint32_t size() const override { return 1; }
    void send(Rank, const Frame&) override {}
    std::uint64_t backlog_bytes(Rank) const override { return 0; }
    std::uint64_t backlog_bytes() const override { return 0; }
    bool progress(const Receive&, const Lost&) override {
        on_look_();
        return false;
    }
    bool flushed() const override { return true; }
    Arrivals arrivals() const override { return how; }
    FabricCounters counters() const override { return {}; }

    Arrivals how = Arrivals::silent;

  private:
    const std::function<void()> on_look_;
};

class ProgressLoopTest : public testing::Test {
  protected:
    static ProgressLoop::Options options() {
        ProgressLoop::Options options;
        options.pool.threads_max = 1;
        options.pacer.pause_rung = 1h;
        return options;
    }

    std::function<void()> on_look = [] {};
    QuietFabric fabric{[this] { on_look(); }};
    const Trees trees{{"/app"}};
    Cache cache{{}, [](const ObjectKey&, FetchFor) {}};
    test::NoFiles no_files;
    ProgressLoop loop{
        options(),
        {.trees = trees, .cache = cache, .backing = no_files, .fabric = fabric},
        [](const std::string&, const std::string&, const ProgressLoop::Later&) { return std::string(); },
        [](const std::string&, const std::string&, const ProgressLoop::Parts&) {
            return std::optional<std::string>();
        }};
};

// Other nodes wait for answers during a turn.
TEST_F(ProgressLoopTest, LooksForMessagesBetweenManyEvents) {
    constexpr std::size_t events = 5000;
    std::size_t of_this_turn = 0;
    std::vector<std::size_t> of_turns;
    on_look = [&] { of_turns.push_back(std::exchange(of_this_turn, 0)); };
    for (std::size_t i = 0; i < events; ++i) {
        loop.post([&] { ++of_this_turn; });
    }
    loop.post([this] { loop.leave(0ms); });
    loop.run();
    EXPECT_EQ(std::accumulate(of_turns.begin(), of_turns.end(), std::size_t{0}), events);
    EXPECT_LE(*std::max_element(of_turns.begin(), of_turns.end()), ProgressLoop::events_of_a_turn_max);
}

TEST_F(ProgressLoopTest, MeasuresTurnsInWhichOnlySomethingWasDue) {
    loop.at(std::chrono::steady_clock::now(), [this] {
        std::this_thread::sleep_for(20ms);
        loop.leave(0ms);
    });
    loop.run();
    EXPECT_GE(LatencyHistogram::quantile_us(loop.turns().buckets(), 1), 20000U);
}

// To look without that would cost the programs of a crowded machine time.
TEST_F(ProgressLoopTest, LooksOnlyWhenRungWhereSendersRing) {
    fabric.how = Fabric::Arrivals::rung;
    std::atomic<int> looks = 0;
    on_look = [&] { ++looks; };
    std::thread running([this] { loop.run(); });
    const auto await_looks = [&](int count) {
        for (int i = 0; i < 30'000 && looks < count; ++i) {
            std::this_thread::sleep_for(1ms);
        }
        return looks >= count;
    };
    EXPECT_TRUE(await_looks(1));
    for (int rings = 1; rings <= 5; ++rings) {
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(looks, rings);
        fabric.doorbell().ring();
        EXPECT_TRUE(await_looks(rings + 1));
    }
    loop.post([this] { loop.leave(0ms); });
    running.join();
}

}  // namespace
}  // namespace copper
