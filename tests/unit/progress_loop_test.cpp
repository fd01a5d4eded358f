#include "daemon/progress_loop.hpp"

#include <gtest/gtest.h>

#include <set>

#include "cache/extent_memory.hpp"
#include "cache/path_opener.hpp"
#include "collectives/wire.hpp"

namespace copper {
namespace {

using std::chrono::hours;

constexpr Rank self{5};
constexpr std::uint32_t nodes = 8192;

// Delivers what the test puts in, and writes down the calls that are sent.
class FakeFabric final : public Fabric {
  public:
    Rank self() const override { return copper::self; }
    std::uint32_t size() const override { return nodes; }
    void send(Rank to, const Frame& frame) override {
        const auto message = decode(frame);
        if (message && std::holds_alternative<Call>(*message)) {
            calls.emplace_back(to, std::get<Call>(*message));
        }
    }
    std::uint64_t backlog_bytes(Rank) const override { return 0; }
    std::uint64_t backlog_bytes() const override { return 0; }
    bool progress(const Receive& receive, const Lost&) override {
        const auto arrived = std::exchange(arriving, {});
        for (const auto& [from, message] : arrived) {
            receive(from, encode(message));
        }
        return !arrived.empty();
    }
    bool flushed() const override { return true; }
    bool must_poll() const override { return true; }
    FabricCounters counters() const override { return {}; }

    std::vector<std::pair<Rank, Message>> arriving;
    std::vector<std::pair<Rank, Call>> calls;
};

class ProgressLoopTest : public testing::Test {
  protected:
    // Says that it leaves once the messages from `peers` have been taken.
    void leave_after_messages_of(const std::vector<Rank>& peers) {
        for (const Rank peer : peers) {
            fabric_.arriving.emplace_back(peer, Ping{});
        }
        loop_.at(std::chrono::steady_clock::now(), [this] {
            loop_.tell_acquaintances("departed", "5 why");
            loop_.leave(hours(1));
            then_();
        });
    }
    void answer(Rank from) {
        fabric_.arriving.emplace_back(from, Answer{.id = 0, .origin = self, .parts = {{from, "{}"}}});
    }

    FakeFabric fabric_;
    Trees trees_{{"/lus"}};
    PosixBacking backing_{trees_, PathOpener::detect(), ExtentMemory::make(), PathOpener::Links::follow};
    Cache cache_{{.budget_bytes = 1U << 20}, [](const ObjectKey&) {}};
    std::function<void()> then_ = [] {};
    ProgressLoop loop_{{},
                       {.trees = trees_, .cache = cache_, .backing = backing_, .fabric = fabric_},
                       [](const std::string&, const std::string&) { return "{}"; }};
};

TEST_F(ProgressLoopTest, ANodeThatLeavesTellsThoseWhomItHasTalkedTo) {
    then_ = [this] {
        for (const Rank peer : {Rank{7}, Rank{8}, Rank{8000}}) {
            answer(peer);
        }
    };
    leave_after_messages_of({Rank{7}, Rank{8000}, Rank{8}, Rank{7}});
    loop_.run();  // until all have answered
    std::set<Rank> told;
    for (const auto& [to, call] : fabric_.calls) {
        told.insert(to);
        EXPECT_EQ(call.argument, "5 why");
        EXPECT_EQ(call.patience.count(), 0) << "or it would be passed on";
    }
    EXPECT_EQ(told, (std::set<Rank>{Rank{7}, Rank{8}, Rank{8000}}));
    EXPECT_EQ(fabric_.calls.size(), told.size());
}

TEST_F(ProgressLoopTest, ANodeThatLeavesDoesNotWaitForOnesThatLeaveToo) {
    then_ = [this] {
        answer(Rank{8});
        loop_.lose_for_good(Rank{7}, "it has left");
    };
    leave_after_messages_of({Rank{7}, Rank{8}});
    loop_.run();
    EXPECT_EQ(fabric_.calls.size(), 2U);
}

TEST_F(ProgressLoopTest, WhoHasLeftIsNotTold) {
    fabric_.arriving.emplace_back(Rank{7}, Ping{});
    loop_.at(std::chrono::steady_clock::now(), [this] {
        loop_.lose_for_good(Rank{7}, "it has left");
        loop_.tell_acquaintances("departed", "5 why");
        loop_.leave(hours(1));
    });
    loop_.run();
    EXPECT_TRUE(fabric_.calls.empty());
}

}  // namespace
}  // namespace copper
