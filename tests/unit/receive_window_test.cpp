#include "fabric/receive_window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

namespace copper {
namespace {

// MPI with this window: messages are matched by the receive that was posted first, and are complete in any
// order, or never.
class Receiver {
  public:
    explicit Receiver(ReceiveWindow::Options options) : window(options) { top_up(); }

    // False if no receive is free for it.
    bool arrive() {
        const auto free =
            std::find_if(slots.begin(), slots.end(), [](const Slot& slot) { return !slot.taken; });
        if (free == slots.end()) {
            return false;
        }
        free->taken = true;
        return true;
    }
    // The n-th of those that have a message is complete.
    void complete(std::size_t n) {
        const auto slot = std::find_if(slots.begin(), slots.end(),
                                       [&n](const Slot& one) { return one.taken && !one.held && n-- == 0; });
        ASSERT_NE(slot, slots.end());
        window.complete(slot->name);
        slots.erase(slot);
        top_up();
    }
    // The last `messages` that have come are of a node that is dead.
    void lose(std::size_t messages) {
        for (auto slot = slots.rbegin(); slot != slots.rend() && messages > 0; ++slot) {
            if (slot->taken && !slot->held) {
                slot->held = true;
                --messages;
            }
        }
        window.lose_link(9);
        top_up();
    }
    std::size_t count(bool taken) const {
        return static_cast<std::size_t>(std::count_if(slots.begin(), slots.end(), [taken](const Slot& slot) {
            return slot.taken == taken && !slot.held;
        }));
    }
    std::size_t size() const { return slots.size(); }

    ReceiveWindow window;

  private:
    struct Slot {
        std::size_t name = 0;
        bool taken = false;
        bool held = false;
    };
    void top_up() {
        for (std::size_t missing = window.missing(); missing > 0; --missing) {
            window.post(next_name);
            slots.push_back({.name = next_name++});
        }
        EXPECT_EQ(window.size(), slots.size());
        EXPECT_EQ(window.missing(), 0U);
        EXPECT_EQ(window.first(), slots.front().name);
    }
    std::list<Slot> slots;  // in the order in which they were posted
    std::size_t next_name = 0;
};

constexpr ReceiveWindow::Options options{.posted = 32, .free = 16, .most = 512};

void exchange(Receiver& receiver, std::size_t messages) {
    for (std::size_t i = 0; i < messages; ++i) {
        ASSERT_TRUE(receiver.arrive());
        receiver.complete(0);
    }
}

TEST(ReceiveWindow, LostLinksThatHoldNothingCostNothingInTheEnd) {
    Receiver receiver(options);
    for (int link = 0; link < 1000; ++link) {
        receiver.lose(0);
        EXPECT_LE(receiver.size(), options.most);
        exchange(receiver, 5);
    }
    exchange(receiver, 2 * options.most);
    EXPECT_EQ(receiver.size(), options.posted);
}

TEST(ReceiveWindow, ManyLinksThatAreLostAtOnceAddABoundedNumber) {
    Receiver receiver(options);
    for (int link = 0; link < 1000; ++link) {
        receiver.lose(0);
    }
    EXPECT_LE(receiver.size(), options.most);
}

TEST(ReceiveWindow, WhatDeadNodesHoldIsMadeUpFor) {
    Receiver receiver(options);
    for (int link = 0; link < 40; ++link) {
        for (int message = 0; message < 9; ++message) {
            ASSERT_TRUE(receiver.arrive());
        }
        receiver.lose(9);
        exchange(receiver, 100);
        EXPECT_GE(receiver.count(false), options.free);
    }
    EXPECT_LE(receiver.size(), 40U * 9 + options.posted);
}

TEST(ReceiveWindow, AnyOrderLeavesAFreeOne) {
    std::mt19937 random(1);
    for (int run = 0; run < 50; ++run) {
        Receiver receiver(options);
        std::size_t held = 0;
        for (int step = 0; step < 3000; ++step) {
            const std::size_t under_way = receiver.count(true);
            if (random() % 100 == 0 && held < 300) {
                const std::size_t messages = std::min<std::size_t>(random() % 10, under_way);
                held += messages;
                receiver.lose(messages);
            } else if (random() % 2 == 0 && under_way < 12) {
                ASSERT_TRUE(receiver.arrive()) << "run " << run << ", step " << step;
            } else if (under_way > 0) {
                receiver.complete(random() % under_way);
            }
        }
        exchange(receiver, 2 * options.most);
        EXPECT_LE(receiver.size(), held + receiver.count(true) + options.posted);
    }
}

}  // namespace
}  // namespace copper
