#include "collectives/membership.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace copper {
namespace {

std::vector<std::string> file_trees(std::size_t count) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < count; ++i) {
        paths.push_back("/apps/python/lib/package" + std::to_string(i));
    }
    return paths;
}

Membership view(std::uint32_t size, std::size_t readers, Rank self = Rank{0}, std::size_t arity = 4) {
    return Membership({.size = size, .self = self, .arity = arity, .readers = readers});
}

std::map<std::string, Rank> readers_of(const Membership& membership, const std::vector<std::string>& trees) {
    std::map<std::string, Rank> result;
    for (const std::string& tree : trees) {
        result[tree] = membership.reader_of(tree);
    }
    return result;
}

TEST(Membership, ReadersAreDistinctLiveNodes) {
    for (const std::uint32_t size : {1U, 2U, 5U, 16U, 17U, 100U, 1000U}) {
        for (const std::size_t readers :
             {std::size_t{1}, std::size_t{4}, std::size_t{16}, std::size_t{4096}}) {
            const Membership membership = view(size, readers);
            const std::set<Rank> distinct(membership.readers().begin(), membership.readers().end());
            EXPECT_EQ(distinct.size(), std::min<std::size_t>(size, readers));
            EXPECT_EQ(membership.readers().size(), distinct.size());
            for (const Rank reader : distinct) {
                EXPECT_TRUE(membership.is_alive(reader));
            }
            for (const std::string& tree : file_trees(50)) {
                EXPECT_TRUE(distinct.contains(membership.reader_of(tree)));
            }
        }
    }
}

TEST(Membership, AllNodesAgreeInWhateverOrderTheyLearnOfLosses) {
    constexpr std::uint32_t size = 40;
    const auto trees = file_trees(200);
    const std::vector<Rank> lost = {Rank{3}, Rank{17}, Rank{18}, Rank{39}, Rank{0}, Rank{22}};
    Membership first = view(size, 8, Rank{1});
    for (const Rank rank : lost) {
        first.lose(rank);
    }
    const auto expected = readers_of(first, trees);
    std::mt19937 random(1);
    for (std::uint32_t self = 0; self < size; ++self) {
        if (std::find(lost.begin(), lost.end(), Rank{self}) != lost.end()) {
            continue;
        }
        auto order = lost;
        std::shuffle(order.begin(), order.end(), random);
        Membership membership = view(size, 8, Rank{self});
        for (const Rank rank : order) {
            membership.lose(rank);
            membership.lose(rank);  // idempotent
        }
        EXPECT_EQ(membership.readers(), first.readers());
        EXPECT_EQ(readers_of(membership, trees), expected);
    }
}

// The election is part of the protocol: daemons of one job must agree, whatever compiler built them.
TEST(Membership, FileTreesSpreadEvenlyOverTheReaders) {
    constexpr std::size_t trees = 16000;
    const Membership membership = view(100, 16);
    std::map<Rank, std::size_t> shares;
    for (const std::string& tree : file_trees(trees)) {
        ++shares[membership.reader_of(tree)];
    }
    ASSERT_EQ(shares.size(), 16U);
    for (const auto& [rank, share] : shares) {
        EXPECT_GT(share, trees / 16 * 85 / 100) << "node " << rank.value;
        EXPECT_LT(share, trees / 16 * 115 / 100) << "node " << rank.value;
    }
}

TEST(Membership, ALostReaderMovesItsOwnFileTreesOnly) {
    const auto trees = file_trees(2000);
    for (const std::uint32_t size : {5U, 16U, 17U, 100U, 333U}) {
        for (const std::size_t readers : {std::size_t{1}, std::size_t{3}, std::size_t{16}}) {
            const Membership whole = view(size, readers, Rank{size - 1});
            const auto before = readers_of(whole, trees);
            for (const Rank lost : whole.readers()) {
                if (lost == whole.self()) {
                    continue;
                }
                Membership membership = whole;
                membership.lose(lost);
                const auto after = readers_of(membership, trees);
                std::size_t moved_from_others = 0;
                for (const auto& [tree, reader] : before) {
                    if (reader == lost) {
                        EXPECT_NE(after.at(tree), lost);
                    } else {
                        moved_from_others += after.at(tree) == reader ? 0 : 1;
                    }
                }
                EXPECT_EQ(moved_from_others, 0U)
                    << size << " nodes, " << readers << " readers, lost " << lost.value;
            }
        }
    }
}

TEST(Membership, ALostNodeThatIsNoReaderMovesNothing) {
    const auto trees = file_trees(500);
    Membership membership = view(100, 8);
    const auto readers = membership.readers();
    const auto before = readers_of(membership, trees);
    for (std::uint32_t rank = 1; rank < 100; ++rank) {
        if (std::find(readers.begin(), readers.end(), Rank{rank}) == readers.end()) {
            membership.lose(Rank{rank});
        }
    }
    EXPECT_EQ(membership.readers(), readers);
    EXPECT_EQ(readers_of(membership, trees), before);
}

// Every node's own view of its place in the tree, put together.
void expect_tree_over(const std::vector<Membership>& views, Rank root) {
    std::set<Rank> reached = {root};
    std::vector<Rank> order = {root};
    std::map<Rank, const Membership*> by_rank;
    for (const Membership& membership : views) {
        by_rank[membership.self()] = &membership;
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
        for (const Rank child : by_rank.at(order[next])->children(root)) {
            ASSERT_TRUE(by_rank.contains(child)) << "a lost node in the tree";
            ASSERT_TRUE(reached.insert(child).second) << "reached twice";
            ASSERT_EQ(by_rank.at(child)->parent(root), order[next]);
            order.push_back(child);
        }
    }
    ASSERT_FALSE(by_rank.at(root)->parent(root));
    ASSERT_EQ(reached.size(), views.size());
}

TEST(Membership, SuspectsComeBackAndThoseGoneForGoodDoNot) {
    Membership membership({.size = 10, .self = Rank{0}, .arity = 2, .readers = 4});
    const auto alive = membership.alive();
    const auto readers = membership.readers();
    membership.lose({.rank = Rank{3}, .silent_since = TimePoint()});
    membership.lose({.rank = Rank{4}, .silent_since = TimePoint()});
    membership.lose(Rank{5});
    EXPECT_EQ(membership.suspects(), (std::vector{Rank{3}, Rank{4}}));
    membership.lose(Rank{4});  // now it is known
    EXPECT_EQ(membership.suspects(), std::vector{Rank{3}});
    membership.lose({.rank = Rank{5}, .silent_since = TimePoint()});
    for (std::uint32_t rank = 3; rank < 6; ++rank) {
        membership.regain(Rank{rank}, TimePoint{});
        EXPECT_EQ(membership.is_alive(Rank{rank}), rank == 3);
    }
    membership.regain(Rank{77}, TimePoint{});
    EXPECT_EQ(membership.alive().size(), alive.size() - 2);

    Membership other({.size = 10, .self = Rank{0}, .arity = 2, .readers = 4});
    other.lose({.rank = readers.back(), .silent_since = TimePoint()});
    EXPECT_NE(other.readers(), readers);
    other.regain(readers.back(), TimePoint{});
    EXPECT_EQ(other.alive(), alive);
    EXPECT_EQ(other.readers(), readers);
}

TEST(Membership, TreesReachAllLiveNodesDownToTheLastOne) {
    constexpr std::uint32_t size = 24;
    for (const std::size_t arity : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
        std::vector<std::uint32_t> order(size);
        std::iota(order.begin(), order.end(), 0U);
        std::mt19937 random(7);
        std::shuffle(order.begin(), order.end(), random);
        std::vector<Membership> views;
        for (const std::uint32_t rank : order) {
            views.push_back(view(size, 4, Rank{rank}, arity));
        }
        while (true) {
            for (const Membership& membership : views) {
                ASSERT_NO_FATAL_FAILURE(expect_tree_over(views, membership.self()));
            }
            const Membership& any = views.front();
            ASSERT_EQ(any.alive().size(), views.size());
            ASSERT_GE(any.readers().size(), 1U);
            ASSERT_LE(any.readers().size(), 4U);
            for (const Rank reader : any.readers()) {
                ASSERT_TRUE(any.is_alive(reader));
            }
            for (const std::string& tree : file_trees(20)) {
                ASSERT_TRUE(any.is_alive(any.reader_of(tree)));
            }
            if (views.size() == 1) {
                break;
            }
            const Rank lost = views.back().self();
            views.pop_back();
            for (Membership& membership : views) {
                membership.lose(lost);
                ASSERT_FALSE(membership.is_alive(lost));
            }
        }
        EXPECT_EQ(views.front().readers(), std::vector<Rank>{views.front().self()});
    }
}

// Nodes whose views differ compute different trees of a root. Still a broadcast cannot circle between them:
// in every view it moves away from the root, counted round the ring of ranks.
TEST(Membership, NoMixOfViewsClosesARing) {
    constexpr std::uint32_t size = 60;
    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
        const Rank self{static_cast<std::uint32_t>(random() % size)};
        Membership membership = view(size, 4, self, 1 + random() % 4);
        for (std::uint32_t losses = static_cast<std::uint32_t>(random() % size); losses != 0; --losses) {
            const Rank lost{static_cast<std::uint32_t>(random() % size)};
            if (lost != self) {
                membership.lose(lost);
            }
        }
        for (const Rank root : membership.alive()) {
            const auto distance = [root](Rank rank) { return (rank.value + size - root.value) % size; };
            for (const Rank child : membership.children(root)) {
                ASSERT_GT(distance(child), distance(self));
            }
            const auto parent = membership.parent(root);
            ASSERT_EQ(parent.has_value(), root != self);
            ASSERT_TRUE(!parent || distance(*parent) < distance(self));
        }
    }
}

TEST(Membership, EachChangeOfAViewHasALaterEpoch) {
    Membership membership({.size = 8, .self = Rank{0}});
    EXPECT_EQ(membership.epoch(), 0U);
    const LostNode suspect{.rank = Rank{3}, .silent_since = TimePoint{}};
    membership.lose(suspect);
    membership.lose(suspect);
    EXPECT_EQ(membership.epoch(), 1U);
    membership.note_epoch(5);
    membership.note_epoch(2);
    EXPECT_EQ(membership.epoch(), 5U);
    membership.regain(Rank{3}, TimePoint{});
    membership.regain(Rank{4}, TimePoint{});
    EXPECT_EQ(membership.epoch(), 6U);
    EXPECT_EQ(membership.return_of(Rank{3})->epoch, 6U);
    EXPECT_FALSE(membership.return_of(Rank{4}));
    membership.lose(suspect);
    EXPECT_FALSE(membership.return_of(Rank{3}));
}

TEST(Membership, AViewTellsWhoIsSuspectedAndWhoIsBackSinceWhen) {
    using namespace std::chrono_literals;
    Membership membership({.size = 100, .self = Rank{0}});
    const TimePoint start{1h};
    EXPECT_EQ(membership.view(start), View{});
    for (std::uint32_t rank = 1; rank <= 70; ++rank) {
        membership.lose({.rank = Rank{rank}, .silent_since = start});
    }
    membership.lose(Rank{80});
    EXPECT_EQ(membership.view(start).suspects.size(), suspects_told_max);
    EXPECT_EQ(membership.view(start + 2s).suspects.front(), (Sighting{Rank{70}, 2s}));
    for (std::uint32_t rank = 1; rank <= 70; ++rank) {
        membership.regain(Rank{rank}, start + 3s);
    }
    const View view = membership.view(start + 5s);
    EXPECT_TRUE(view.suspects.empty()) << "80 is gone for good, which is nobody else's concern";
    EXPECT_EQ(view.returned.size(), returned_told_max);
    EXPECT_EQ(view.returned.front(), (Sighting{Rank{70}, 2s}));
    EXPECT_EQ(view.epoch, 141U);
    EXPECT_TRUE(membership.view(start + 63s).returned.empty());
}

// They follow each other as if those before had been lost one by one.
TEST(Membership, TheNextReadersAreThoseThatWouldFollow) {
    for (const std::size_t readers : {std::size_t{1}, std::size_t{4}, std::size_t{12}}) {
        Membership membership({.size = 12, .self = Rank{5}, .arity = 2, .readers = readers});
        for (int tree = 0; tree < 50; ++tree) {
            const std::string path = "/app/" + std::to_string(tree);
            const auto order = membership.readers_of(path, 3);
            ASSERT_EQ(order.size(), 3U);
            EXPECT_EQ(order[0], membership.reader_of(path));
            if (order[0] == Rank{5}) {
                continue;
            }
            Membership after({.size = 12, .self = Rank{5}, .arity = 2, .readers = readers});
            after.lose(order[0]);
            EXPECT_EQ(after.reader_of(path), order[1]);
        }
        EXPECT_EQ(membership.readers_of("/app", 100).size(), 12U);
    }
}

}  // namespace
}  // namespace copper
