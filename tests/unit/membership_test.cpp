#include "collectives/membership.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace copper {
namespace {

using Heard = Membership::Heard;

std::vector<std::string> file_trees(std::size_t count) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < count; ++i) {
        paths.push_back("/apps/python/lib/package" + std::to_string(i));
    }
    return paths;
}

ObjectKey listing_of(const std::string& file_tree) {
    return {.kind = ObjectKind::directory, .path = file_tree};
}

// Of a file in it.
ObjectKey extent_of(const std::string& file_tree, std::uint32_t index) {
    return {.kind = ObjectKind::extent, .path = file_tree + "/weights", .index = index};
}

// Each of another stripe, but for the first two.
std::vector<ObjectKey> objects_of(const std::string& file_tree, std::uint32_t stripes) {
    std::vector<ObjectKey> keys{listing_of(file_tree), extent_of(file_tree, 1)};
    for (std::uint32_t stripe = 0; stripe < stripes; ++stripe) {
        keys.push_back(extent_of(file_tree, first_stripe_extents + stripe * stripe_extents));
    }
    return keys;
}

Membership view(std::uint32_t size, std::size_t readers, Rank self = Rank{0}, std::size_t arity = 4) {
    return Membership({.size = size, .self = self, .arity = arity, .readers = readers});
}

News news_of(std::uint32_t rank, std::uint32_t incarnation, NodeState state) {
    return {.rank = Rank{rank}, .incarnation = incarnation, .state = state};
}

// What a node knows of each rank, and what follows from it.
std::vector<NodeState> states(const Membership& membership) {
    std::vector<NodeState> result;
    for (std::uint32_t rank = 0; rank < membership.size(); ++rank) {
        result.push_back(membership.state(Rank{rank}));
    }
    return result;
}

std::map<std::string, Route> routes(const Membership& membership, const std::vector<std::string>& trees) {
    std::map<std::string, Route> result;
    for (const std::string& tree : trees) {
        result[tree] = membership.route(listing_of(tree));
    }
    return result;
}

bool contains(const std::vector<Rank>& all, Rank one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

std::vector<Rank> others_than(Rank self, std::uint32_t size) {
    std::vector<Rank> ranks;
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        if (Rank{rank} != self) {
            ranks.push_back(Rank{rank});
        }
    }
    return ranks;
}

// ---- what is news

TEST(News, OfTwoReportsTheHigherIncarnationCountsAndThenTheLaterState) {
    std::vector<News> reports;
    for (std::uint32_t incarnation = 0; incarnation < 4; ++incarnation) {
        for (const NodeState state :
             {NodeState::serving, NodeState::resigned, NodeState::suspect, NodeState::dead}) {
            reports.push_back(news_of(3, incarnation, state));
        }
    }
    for (std::size_t earlier = 1; earlier < reports.size(); ++earlier) {  // the first one says nothing
        for (std::size_t later = earlier; later < reports.size(); ++later) {
            Membership upwards = view(8, 4);
            EXPECT_EQ(upwards.note(reports[earlier]), Heard::news);
            EXPECT_EQ(upwards.note(reports[later]), earlier == later ? Heard::nothing_new : Heard::news);
            EXPECT_EQ(upwards.state(Rank{3}), reports[later].state);
            Membership downwards = view(8, 4);
            downwards.note(reports[later]);
            EXPECT_EQ(downwards.note(reports[earlier]), Heard::nothing_new);
            EXPECT_EQ(downwards.state(Rank{3}), reports[later].state);
            EXPECT_EQ(downwards.epoch(), upwards.epoch());
        }
    }
    EXPECT_EQ(view(8, 4).note(reports[0]), Heard::nothing_new);
}

std::vector<News> random_reports(std::mt19937& random, std::uint32_t size, std::size_t count) {
    std::vector<News> reports;
    for (std::size_t i = 0; i < count; ++i) {
        reports.push_back(news_of(static_cast<std::uint32_t>(random() % size),
                                  static_cast<std::uint32_t>(random() % 4),
                                  static_cast<NodeState>(random() % 4)));
    }
    return reports;
}

TEST(News, InAnyOrderAndHoweverOftenItIsToldAllNodesAgree) {
    constexpr std::uint32_t size = 40;
    const auto trees = file_trees(50);
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        const auto reports = random_reports(random, size, 1 + random() % 100);
        std::unique_ptr<Membership> expected;
        for (std::uint32_t self = size; self < size + 10; ++self) {  // nobody hears of itself
            auto told = reports;
            for (std::size_t again = random() % 50; again > 0; --again) {
                told.push_back(reports[random() % reports.size()]);
            }
            std::shuffle(told.begin(), told.end(), random);
            auto membership = std::make_unique<Membership>(
                Membership::Options{.size = size + 10, .self = Rank{self}, .readers = 8});
            for (const News& news : told) {
                const auto epoch = membership->epoch();
                const Heard heard = membership->note(news);
                ASSERT_EQ(heard == Heard::news, membership->epoch() > epoch);
                ASSERT_EQ(heard == Heard::nothing_new, membership->epoch() == epoch);
            }
            if (expected == nullptr) {
                expected = std::move(membership);
                continue;
            }
            ASSERT_EQ(states(*membership), states(*expected));
            ASSERT_EQ(membership->epoch(), expected->epoch());
            ASSERT_EQ(membership->alive(), expected->alive());
            ASSERT_EQ(membership->readers(), expected->readers());
            ASSERT_EQ(routes(*membership, trees), routes(*expected, trees));
        }
    }
}

// Nodes that hear different things, of themselves too, and then talk to each other.
TEST(News, NodesThatTalkToEachOtherEndWithOneViewInWhichTheLivingAreAlive) {
    constexpr std::uint32_t size = 10;  // so few that the latest changes are all of them
    std::mt19937 random(2);
    for (std::uint32_t round = 0; round < 200; ++round) {
        std::vector<Membership> views;
        for (std::uint32_t self = 0; self < size; ++self) {
            views.push_back(view(size, 4, Rank{self}));
            for (const News& news : random_reports(random, size, random() % 20)) {
                views.back().note(news);
            }
        }
        views[round % size].resign();
        views[(round + 1) % size].leave();
        const auto talk = [&](std::uint32_t from, std::uint32_t to) {
            bool is_new = false;
            for (const News& news : views[from].news_for(Rank{to})) {
                is_new = views[to].note(news) != Heard::nothing_new || is_new;
            }
            return is_new;
        };
        bool is_new = true;
        for (int rounds = 0; is_new; ++rounds) {
            ASSERT_LT(rounds, 20) << "it does not end";
            is_new = false;
            for (std::uint32_t from = 0; from < size; ++from) {
                for (std::uint32_t to = 0; to < size; ++to) {
                    is_new = (from != to && talk(from, to)) || is_new;
                }
            }
        }
        for (std::uint32_t self = 0; self < size; ++self) {
            ASSERT_EQ(states(views[self]), states(views[0]));
            ASSERT_EQ(views[self].epoch(), views[0].epoch());
            const bool has_resigned = self == round % size;
            const bool has_left = self == (round + 1) % size;
            ASSERT_EQ(views[0].state(Rank{self}), has_resigned ? NodeState::resigned
                                                  : has_left   ? NodeState::dead
                                                               : NodeState::serving);
        }
    }
}

TEST(News, ANodeContradictsWhatIsWrongAboutItself) {
    Membership accuser = view(8, 4, Rank{0});
    Membership accused = view(8, 4, Rank{3});
    for (std::uint32_t incarnation = 1; incarnation < 4; ++incarnation) {
        accuser.suspect(Rank{3});
        ASSERT_EQ(accuser.suspects(), std::vector{Rank{3}});
        const auto accusation = accuser.news_for(Rank{3});
        ASSERT_EQ(accused.note(news_of(3, incarnation - 1, NodeState::suspect)), Heard::denied);
        ASSERT_EQ(accused.state(Rank{3}), NodeState::serving);
        for (const News& news : accusation) {
            ASSERT_EQ(accused.note(news), Heard::nothing_new) << "denied once";
        }
        const News denial = news_of(3, incarnation, NodeState::serving);
        const auto told = accused.news_for(Rank{0});
        ASSERT_EQ(std::count(told.begin(), told.end(), denial), 1);
        ASSERT_EQ(accuser.note(denial), Heard::news);
        ASSERT_TRUE(accuser.is_alive(Rank{3}));
        ASSERT_TRUE(accuser.suspects().empty());
        ASSERT_EQ(accuser.note(news_of(3, incarnation - 1, NodeState::suspect)), Heard::nothing_new)
            << "an old one";
    }
    EXPECT_EQ(accused.note(news_of(3, 3, NodeState::dead)), Heard::denied);
    EXPECT_EQ(accused.note(news_of(3, 100, NodeState::serving)), Heard::denied)
        << "of an earlier life, perhaps";
    EXPECT_EQ(accused.state(Rank{3}), NodeState::serving);
}

TEST(News, ASuspicionOfANodeThatHasResignedIsDeniedAndItStaysResigned) {
    Membership membership = view(8, 4, Rank{3});
    membership.resign();
    EXPECT_EQ(membership.note(news_of(3, 1, NodeState::suspect)), Heard::denied);
    EXPECT_EQ(membership.state(Rank{3}), NodeState::resigned);
    EXPECT_EQ(membership.news_for(Rank{0}).front(), news_of(3, 2, NodeState::resigned));
}

TEST(News, OfANodeThatLeftCountsWhateverElseIsTold) {
    Membership leaving = view(8, 4, Rank{3});
    leaving.leave();
    const News last = news_of(3, 1, NodeState::dead);
    EXPECT_EQ(leaving.news_for(Rank{0}), std::vector<News>({last, news_of(0, 0, NodeState::serving)}));
    Membership membership = view(8, 4, Rank{0});
    EXPECT_EQ(membership.note(last), Heard::news);
    membership.suspect(Rank{3});
    for (const NodeState state : {NodeState::serving, NodeState::resigned, NodeState::suspect}) {
        EXPECT_EQ(membership.note(news_of(3, 1, state)), Heard::nothing_new);
    }
    EXPECT_EQ(membership.state(Rank{3}), NodeState::dead);
    EXPECT_TRUE(membership.suspects().empty());
}

TEST(News, WhatIsCutStaysCutWhateverIsTold) {
    for (const NodeState before :
         {NodeState::serving, NodeState::resigned, NodeState::suspect, NodeState::dead}) {
        Membership membership = view(8, 4, Rank{0});
        membership.note(news_of(3, 1, before));
        membership.cut(Rank{3});
        membership.cut(Rank{3});
        for (const std::uint32_t incarnation : {0U, 1U, 2U, incarnation_max}) {
            for (const NodeState state :
                 {NodeState::serving, NodeState::resigned, NodeState::suspect, NodeState::dead}) {
                EXPECT_EQ(membership.note(news_of(3, incarnation, state)), Heard::nothing_new);
            }
        }
        membership.suspect(Rank{3});
        EXPECT_EQ(membership.state(Rank{3}), NodeState::dead);
        EXPECT_FALSE(contains(membership.alive(), Rank{3}));
        EXPECT_TRUE(membership.suspects().empty());
        for (const News& news : membership.news_for(Rank{1})) {
            EXPECT_NE(news.rank, Rank{3}) << "others may reach it";
        }
    }
}

TEST(News, TellsTheLatestChangesAndToWhomItConcernsTheirOwnState) {
    Membership membership = view(200, 4, Rank{0});
    EXPECT_TRUE(membership.news().empty()) << "most messages carry none";
    for (std::uint32_t rank = 100; rank < 150; ++rank) {
        membership.suspect(Rank{rank});
    }
    for (const std::uint32_t to : {7U, 100U, 149U}) {
        const auto told = membership.news_for(Rank{to});
        ASSERT_LE(told.size(), news_told_max);
        std::set<Rank> ranks;
        for (const News& news : told) {
            EXPECT_TRUE(ranks.insert(news.rank).second) << "told twice";
            EXPECT_EQ(news.state, membership.state(news.rank));
        }
        EXPECT_TRUE(ranks.contains(Rank{to}));
        EXPECT_TRUE(ranks.contains(Rank{0}));
        EXPECT_TRUE(ranks.contains(Rank{149}));
        EXPECT_TRUE(ranks.contains(Rank{140}));
    }
    membership.note(news_of(100, 1, NodeState::serving));
    EXPECT_EQ(membership.news().back(), news_of(100, 1, NodeState::serving)) << "the latest last";
}

TEST(News, EachChangeHasALaterEpoch) {
    Membership membership = view(8, 4, Rank{0});
    std::uint64_t last = membership.epoch();
    const auto has_grown = [&] { return std::exchange(last, membership.epoch()) < membership.epoch(); };
    membership.suspect(Rank{3});
    EXPECT_TRUE(has_grown());
    membership.suspect(Rank{3});
    EXPECT_FALSE(has_grown());
    for (const News& news : {news_of(3, 1, NodeState::serving), news_of(3, 1, NodeState::dead),
                             news_of(3, 2, NodeState::serving), news_of(0, 0, NodeState::suspect),
                             news_of(4, incarnation_max, NodeState::dead)}) {
        membership.note(news);
        EXPECT_TRUE(has_grown());
    }
    membership.resign();
    EXPECT_TRUE(has_grown());
    membership.resume();
    EXPECT_TRUE(has_grown());
    membership.cut(Rank{5});
    EXPECT_TRUE(has_grown());
    membership.leave();
    EXPECT_TRUE(has_grown());
}

// ---- offices

TEST(Offices, ReadersAreDistinctLiveServingNodes) {
    std::mt19937 random(3);
    for (const std::uint32_t size : {1U, 2U, 5U, 16U, 17U, 100U, 1000U}) {
        for (const std::size_t readers :
             {std::size_t{1}, std::size_t{4}, std::size_t{16}, std::size_t{100}, std::size_t{4096}}) {
            Membership membership = view(size, readers, Rank{size / 2});
            EXPECT_EQ(membership.readers().size(), std::min<std::size_t>(size, readers));
            for (std::uint32_t changes = 0; changes < 50; ++changes) {
                const auto list = membership.readers();
                ASSERT_TRUE(std::is_sorted(list.begin(), list.end()));
                ASSERT_EQ(std::adjacent_find(list.begin(), list.end()), list.end());
                for (const Rank reader : list) {
                    ASSERT_EQ(membership.state(reader), NodeState::serving);
                    ASSERT_TRUE(contains(membership.alive(), reader));
                }
                for (const std::string& tree : file_trees(5)) {
                    for (std::uint32_t index = 0; index < 40; ++index) {
                        const ObjectKey key = extent_of(tree, index);
                        const Route route = membership.route(key);
                        ASSERT_TRUE(list.empty() || contains(list, route.reader));
                        if (stripe_of(key) == 0) {
                            ASSERT_EQ(route.reader, membership.route(listing_of(tree)).reader)
                                << "all of a file tree";
                        }
                        ASSERT_LT(route.tree, tree_count(size));
                    }
                }
                membership.note(random_reports(random, size, 1).front());
            }
        }
    }
}

// However many the readers are: each has its turn. (By hashes alone, one of four would have a third of a file
// of 2 GiB.)
TEST(Offices, ALargeFileIsSharedEquallyByAllOfThem) {
    for (const std::size_t readers : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{16}}) {
        const Membership whole = view(32, readers, Rank{31});
        const auto shares = [&whole](std::uint32_t extents) {
            std::map<Rank, std::uint32_t> shares;
            for (std::uint32_t index = 0; index < extents; ++index) {
                ++shares[whole.route(extent_of("/app", index)).reader];
            }
            return shares;
        };
        const auto count = static_cast<std::uint32_t>(readers);
        for (const std::uint32_t each : {first_stripe_extents, 10 * stripe_extents}) {
            const auto parts = shares(count * each);
            EXPECT_EQ(parts.size(), readers);
            for (const auto& [reader, extents] : parts) {
                EXPECT_EQ(extents, each) << readers;
            }
        }
        const Rank second = whole.route(extent_of("/app", first_stripe_extents)).reader;
        EXPECT_EQ(whole.route(extent_of("/app", first_stripe_extents + stripe_extents - 1)).reader, second);
    }
}

// The second stripes of files of one directory do not all meet at one reader.
TEST(Offices, StripesOfFilesThatLieTogetherAreSpread) {
    const Membership whole = view(16, 16);
    std::map<Rank, int> stripes;
    for (int i = 0; i < 1000; ++i) {
        const ObjectKey key{
            .kind = ObjectKind::extent, .path = "/app/" + std::to_string(i), .index = first_stripe_extents};
        ++stripes[whole.route(key).reader];
    }
    EXPECT_EQ(stripes.size(), 15U) << "all but that of their file tree";
    for (const auto& [reader, files] : stripes) {
        EXPECT_GT(files, 33) << "of some 67";
    }
}

// Of four nodes and readers, one is lost: its office has nobody left.
TEST(Offices, TheStripesOfALostOneAreSpreadAndTheOthersStay) {
    const Membership whole = view(4, 4, Rank{3});
    Membership rest = whole;
    rest.suspect(Rank{0});
    std::map<Rank, int> inherited;
    for (const ObjectKey& key : objects_of("/app", 400)) {
        const Rank before = whole.route(key).reader;
        const Rank now = rest.route(key).reader;
        if (before != Rank{0}) {
            EXPECT_EQ(now, before);
        } else {
            ++inherited[now];
        }
    }
    ASSERT_EQ(inherited.size(), 3U);
    for (const auto& [reader, stripes] : inherited) {
        EXPECT_GT(stripes, 15) << "of some 100";
    }
}

// The election is part of the protocol: daemons of one job must agree, whatever compiler built them.
TEST(Offices, FileTreesSpreadEvenlyOverThem) {
    constexpr std::size_t trees = 16000;
    const Membership membership = view(100, 16);
    std::map<Rank, std::size_t> shares;
    for (const std::string& tree : file_trees(trees)) {
        ++shares[membership.route(listing_of(tree)).reader];
    }
    ASSERT_EQ(shares.size(), 16U);
    for (const auto& [rank, share] : shares) {
        EXPECT_GT(share, trees / 16 * 85 / 100) << "node " << rank.value;
        EXPECT_LT(share, trees / 16 * 115 / 100) << "node " << rank.value;
    }
}

TEST(Offices, ALostReaderMovesItsOwnFileTreesOnly) {
    const auto trees = file_trees(2000);
    for (const std::uint32_t size : {5U, 16U, 17U, 100U, 333U}) {
        for (const std::size_t readers : {std::size_t{1}, std::size_t{3}, std::size_t{16}}) {
            const Membership whole = view(size, readers, Rank{size - 1});
            const auto before = routes(whole, trees);
            for (const Rank lost : whole.readers()) {
                for (const NodeState state : {NodeState::resigned, NodeState::suspect, NodeState::dead}) {
                    Membership membership = whole;
                    if (lost == whole.self() ||
                        membership.note(news_of(lost.value, 1, state)) != Heard::news) {
                        continue;
                    }
                    std::size_t moved_from_others = 0;
                    for (const auto& [tree, route] : routes(membership, trees)) {
                        EXPECT_NE(route.reader, lost);
                        const Rank reader = before.at(tree).reader;
                        moved_from_others += reader == lost || route.reader == reader ? 0 : 1;
                    }
                    EXPECT_EQ(moved_from_others, 0U)
                        << size << " nodes, " << readers << " readers, lost " << lost.value;
                    membership.note(news_of(lost.value, 2, NodeState::serving));
                    EXPECT_EQ(routes(membership, trees), before) << "they come back";
                }
            }
        }
    }
}

TEST(Offices, ALostNodeThatIsNoReaderMovesNothing) {
    const auto trees = file_trees(500);
    Membership membership = view(100, 8);
    const auto readers = membership.readers();
    const auto before = routes(membership, trees);
    for (const Rank rank : others_than(Rank{0}, 100)) {
        if (!contains(readers, rank)) {
            membership.suspect(rank);
        }
    }
    EXPECT_EQ(membership.readers(), readers);
    EXPECT_EQ(routes(membership, trees), before);
}

TEST(Offices, RanksUpToTheNextSeatSucceedEachOther) {
    const Membership whole = view(40, 4, Rank{39});
    ASSERT_EQ(whole.readers(), (std::vector{Rank{0}, Rank{10}, Rank{20}, Rank{30}}));
    Membership membership = whole;
    for (std::uint32_t rank = 10; rank < 20; ++rank) {
        EXPECT_EQ(membership.readers()[1], Rank{rank});
        membership.suspect(Rank{rank});
    }
    EXPECT_EQ(membership.readers(), (std::vector{Rank{0}, Rank{20}, Rank{30}})) << "nobody is left in it";
    const auto trees = file_trees(1000);
    std::map<Rank, std::size_t> inherited;
    for (const std::string& tree : trees) {
        const Rank before = whole.route(listing_of(tree)).reader;
        const Rank now = membership.route(listing_of(tree)).reader;
        if (before == Rank{10}) {
            ++inherited[now];
        } else {
            EXPECT_EQ(now, before);
        }
    }
    EXPECT_EQ(inherited.size(), 3U) << "by all others";
    membership.note(news_of(15, 1, NodeState::serving));
    EXPECT_EQ(membership.readers()[1], Rank{15});
    membership.note(news_of(12, 1, NodeState::resigned));
    EXPECT_EQ(membership.readers()[1], Rank{15}) << "12 is back, but not in office";
    membership.note(news_of(12, 2, NodeState::serving));
    EXPECT_EQ(membership.readers()[1], Rank{12});
}

TEST(Offices, ANodeThatResignsAndResumesLeavesItsOfficeAndIsBackInIt) {
    Membership membership = view(40, 4, Rank{10});
    const auto trees = file_trees(100);
    const auto before = routes(membership, trees);
    membership.resign();
    EXPECT_TRUE(membership.is_alive(Rank{10}));
    EXPECT_EQ(membership.readers(), (std::vector{Rank{0}, Rank{11}, Rank{20}, Rank{30}}));
    for (const auto& [tree, route] : routes(membership, trees)) {
        const Rank reader = before.at(tree).reader;
        EXPECT_EQ(route.reader, reader == Rank{10} ? Rank{11} : reader);
        EXPECT_EQ(route.tree, before.at(tree).tree) << "the office has its tree, whoever holds it";
    }
    membership.resume();
    EXPECT_EQ(routes(membership, trees), before);
}

TEST(Offices, WhereNobodyIsInOfficeANodeReadsForItself) {
    for (const NodeState state : {NodeState::resigned, NodeState::dead}) {
        Membership membership = view(8, 4, Rank{5});
        membership.resign();
        for (const Rank rank : others_than(Rank{5}, 8)) {
            membership.note(news_of(rank.value, 1, state));
        }
        EXPECT_TRUE(membership.readers().empty());
        EXPECT_EQ(membership.route(listing_of("/app")).reader, Rank{5});
        const std::vector tried{Rank{5}};
        const auto next = membership.next_reader(listing_of("/app"), tried);
        EXPECT_EQ(next.has_value(), state == NodeState::resigned) << "better than none";
    }
}

TEST(Offices, TheNextReaderIsTheOneThatWouldFollow) {
    for (const std::size_t readers : {std::size_t{1}, std::size_t{4}, std::size_t{12}}) {
        const Membership whole = view(12, readers, Rank{5}, 2);
        for (const ObjectKey& key : objects_of("/app", 48)) {
            Membership membership = whole;
            std::vector<Rank> tried;
            while (tried.size() < 12) {
                const auto next = membership.next_reader(key, {});
                ASSERT_TRUE(next);
                EXPECT_EQ(membership.route(key).reader, *next);
                EXPECT_EQ(whole.next_reader(key, tried), next);
                ASSERT_FALSE(contains(tried, *next));
                tried.push_back(*next);
                if (*next == membership.self()) {
                    membership.resign();
                } else {
                    membership.suspect(*next);
                }
            }
            EXPECT_FALSE(whole.next_reader(key, tried));
        }
    }
}

// ---- trees

// The first tree of an office is its own: small objects leave from the root. The others take turns, so that
// not everything of a large file is forwarded by the same nodes.
TEST(Routes, AStreamTakesAllTreesAlike) {
    for (const std::uint32_t size : {1U, 2U, 3U, 16U, 40U, 1000U}) {
        const Membership membership = view(size, 16);
        for (const std::string& file_tree : file_trees(10)) {
            const Route first = membership.route(listing_of(file_tree));
            std::map<std::uint32_t, std::uint32_t> taken;
            const std::uint32_t extents = 100 * tree_count(size);
            for (std::uint32_t index = 1; index <= extents; ++index) {
                const Route route = membership.route(extent_of(file_tree, index));
                ++taken[route.tree];
                if (size > 1 && route.reader == first.reader) {
                    EXPECT_NE(route.tree, first.tree);
                }
            }
            EXPECT_EQ(taken.size(), tree_count(size));
            for (const auto& [tree, times] : taken) {
                EXPECT_GT(times, 80U);
                EXPECT_LT(times, 120U);
            }
            if (size >= 16) {
                EXPECT_EQ(first.reader, Rank{tree_root(size, first.tree)}) << "the root of its tree";
            }
        }
    }
}

// Every live node's own view of its place in the tree, put together.
void expect_tree_over(const std::vector<Membership>& views, const Route& route) {
    std::map<Rank, const Membership*> by_rank;
    for (const Membership& membership : views) {
        by_rank[membership.self()] = &membership;
    }
    std::map<Rank, std::size_t> depth = {{route.reader, 0}};
    std::vector<Rank> order = {route.reader};
    for (std::size_t next = 0; next < order.size(); ++next) {
        const Membership& node = *by_rank.at(order[next]);
        const auto children = node.children(route);
        auto neighbours = children;
        if (const auto parent = node.parent(route)) {
            neighbours.push_back(*parent);
        }
        ASSERT_EQ(node.neighbours(route), neighbours);
        ASSERT_EQ(node.depth(route), depth[node.self()]);
        for (const Rank child : children) {
            ASSERT_TRUE(by_rank.contains(child)) << "a lost node in the tree";
            ASSERT_TRUE(depth.emplace(child, depth[node.self()] + 1).second) << "reached twice";
            ASSERT_EQ(by_rank.at(child)->parent(route), node.self());
            ASSERT_EQ(by_rank.at(child)->grandparent(route), node.parent(route));
            order.push_back(child);
        }
    }
    ASSERT_FALSE(by_rank.at(route.reader)->parent(route));
    ASSERT_FALSE(by_rank.at(route.reader)->grandparent(route));
    ASSERT_EQ(order.size(), views.size());
}

TEST(Trees, ReachEveryLiveNodeOnceFromAnyReader) {
    std::mt19937 random(4);
    for (int round = 0; round < 60; ++round) {
        const auto size = static_cast<std::uint32_t>(1 + random() % 60);
        const std::size_t arity = 1 + random() % 5;
        std::vector<Rank> ranks = others_than(Rank{size}, size);
        std::shuffle(ranks.begin(), ranks.end(), random);
        const auto dead = static_cast<std::ptrdiff_t>(random() % size);
        std::vector<Membership> views;
        for (auto live = ranks.begin() + dead; live != ranks.end(); ++live) {
            views.push_back(view(size, 4, *live, arity));
            for (auto lost = ranks.begin(); lost != ranks.begin() + dead; ++lost) {
                views.back().suspect(*lost);
            }
        }
        for (const Membership& reader : views) {
            for (std::uint32_t tree = 0; tree < tree_count(size); ++tree) {
                ASSERT_NO_FATAL_FAILURE(expect_tree_over(views, {.reader = reader.self(), .tree = tree}))
                    << size << " nodes, reader " << reader.self().value << ", tree " << tree;
            }
        }
    }
}

TEST(Trees, ReachAllLiveNodesDownToTheLastOne) {
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
            const Membership& any = views.front();
            ASSERT_EQ(any.alive().size(), views.size());
            for (const std::string& tree : file_trees(20)) {
                for (const ObjectKey& key : objects_of(tree, 2)) {
                    ASSERT_NO_FATAL_FAILURE(expect_tree_over(views, any.route(key)));
                }
            }
            if (views.size() == 1) {
                break;
            }
            const Rank lost = views.back().self();
            views.pop_back();
            for (Membership& membership : views) {
                membership.suspect(lost);
                ASSERT_FALSE(membership.is_alive(lost));
            }
        }
        EXPECT_EQ(views.front().readers(), std::vector<Rank>{views.front().self()});
    }
}

// Nodes whose views differ believe in different trees of the living. Still a broadcast cannot circle between
// them: in every view it moves away from the root, and never back to the reader.
TEST(Trees, NoMixOfViewsClosesARing) {
    constexpr std::uint32_t size = 60;
    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
        const Rank self{static_cast<std::uint32_t>(random() % size)};
        Membership membership = view(size, 4, self, 1 + random() % 4);
        for (const News& news : random_reports(random, size, random() % size)) {
            if (news.rank != self) {
                membership.note(news);
            }
        }
        for (std::uint32_t reader = 0; reader < size; ++reader) {
            for (std::uint32_t tree = 0; tree < tree_count(size); ++tree) {
                const Route route{.reader = Rank{reader}, .tree = tree};
                const auto position = [&](Rank rank) {
                    return (rank.value + size - tree_root(size, tree)) % size;
                };
                for (const Rank child : membership.children(route)) {
                    ASSERT_NE(child, route.reader);
                    ASSERT_TRUE(self == route.reader || position(child) > position(self));
                }
                const auto parent = membership.parent(route);
                ASSERT_EQ(parent.has_value(), self != route.reader);
                ASSERT_TRUE(!parent || *parent == route.reader || position(*parent) < position(self));
                ASSERT_LE(membership.depth(route), size);
            }
        }
    }
}

// Exact, over all nodes.
TEST(Trees, WhenANodeIsLostOnlyItsChildrenGetAnotherParent) {
    constexpr std::uint32_t size = 8192;
    const std::vector<Rank> readers = view(size, 4).readers();
    // A root that is no reader, inner nodes of some tree and of another, and the last leaf of the first.
    const std::vector<Rank> lost_ones = {Rank{512}, Rank{1}, Rank{600}, Rank{3000}, Rank{7777}, Rank{8191}};
    std::vector<Route> all_routes;
    for (const Rank reader : readers) {
        for (std::uint32_t tree = 0; tree < tree_count(size); ++tree) {
            all_routes.push_back({.reader = reader, .tree = tree});
        }
    }
    std::map<Rank, std::size_t> changed;
    std::map<Rank, std::size_t> children;
    for (const Rank lost : lost_ones) {
        ASSERT_FALSE(contains(readers, lost));
        for (const Route& route : all_routes) {
            children[lost] += view(size, 4, lost).children(route).size();
        }
    }
    for (std::uint32_t self = 0; self < size; ++self) {
        Membership membership = view(size, 4, Rank{self});
        std::vector<std::optional<Rank>> before;
        std::vector<std::optional<Rank>> grandparents;
        for (const Route& route : all_routes) {
            before.push_back(membership.parent(route));
            grandparents.push_back(membership.grandparent(route));
        }
        for (const Rank lost : lost_ones) {
            if (lost == Rank{self}) {
                continue;
            }
            membership.suspect(lost);
            for (std::size_t i = 0; i < all_routes.size(); ++i) {
                const auto after = membership.parent(all_routes[i]);
                if (before[i] == lost) {
                    ++changed[lost];
                    ASSERT_EQ(after, grandparents[i]);
                } else {
                    ASSERT_EQ(after, before[i])
                        << "of node " << self << ", which is no child of " << lost.value;
                }
            }
            membership.note(news_of(lost.value, 1, NodeState::serving));
            for (std::size_t i = 0; i < all_routes.size(); ++i) {
                ASSERT_EQ(membership.parent(all_routes[i]), before[i]) << "it is back";
            }
            membership.note(news_of(lost.value, 2, NodeState::serving));
        }
    }
    for (const Rank lost : lost_ones) {
        EXPECT_EQ(changed[lost], children[lost]) << "of node " << lost.value;
        EXPECT_GT(changed[lost], 0U);
        std::printf("node %u lost: of %zu parents %zu change, all of its children\n", lost.value,
                    (size - 1) * all_routes.size(), changed[lost]);
    }
}

// Exact, over all nodes.
TEST(Trees, ANodeHasFewPeersInALongRun) {
    constexpr std::uint32_t size = 8192;
    constexpr std::uint32_t extents = 4000;
    const Membership any = view(size, 16);
    std::map<Rank, std::set<std::uint32_t>> trees_of_reader;
    for (const std::string& file_tree : file_trees(10)) {
        for (std::uint32_t index = 0; index < extents; ++index) {
            const Route route = any.route(extent_of(file_tree, index));
            trees_of_reader[route.reader].insert(route.tree);
        }
    }
    ASSERT_EQ(trees_of_reader.size(), 16U);
    std::size_t most = 0;
    for (std::uint32_t self = 0; self < size; ++self) {
        const Membership membership = view(size, 16, Rank{self});
        std::set<Rank> peers;
        for (const auto& [reader, trees] : trees_of_reader) {
            for (const std::uint32_t tree : trees) {
                const auto neighbours = membership.neighbours({.reader = reader, .tree = tree});
                peers.insert(neighbours.begin(), neighbours.end());
            }
        }
        most = std::max(most, peers.size());
    }
    std::printf("most peers of a node: %zu\n", most);
    EXPECT_LE(most, 128U);
}

}  // namespace
}  // namespace copper
