#include "collectives/opinions.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace copper {
namespace {

using Verdict = Opinions::Verdict;

constexpr Rank self{1};
constexpr Rank other{2};
constexpr Rank third{3};

ObjectPtr names() {
    return make_object(Listing({{.name = "a", .target = "", .attributes = {}}}, Listing::Detail::names_only));
}

ObjectPtr nothing() {
    return make_object(Listing());
}

TEST(Opinions, WhatBecomesOfWhatAReaderFound) {
    struct Row {
        ObjectPtr found;
        std::vector<Finding> findings;
        Verdict verdict;
    };
    const std::vector<Finding> none;
    const std::vector<Finding> io_error = {{other, EIO}};
    const std::vector<Finding> empty = {{other, Finding::empty}};
    const std::vector<Finding> slow = {{other, ETIMEDOUT}};
    const std::vector<Finding> own = {{self, EIO}};
    const std::vector<Row> rows = {
        {names(), none, Verdict::believe},
        {names(), io_error, Verdict::believe},
        {make_error(ENAMETOOLONG), none, Verdict::believe},
        {make_error(EIO), none, Verdict::ask_another},
        {make_error(EIO), own, Verdict::ask_another},
        {make_error(EIO), empty, Verdict::ask_another},
        {make_error(EIO), slow, Verdict::ask_another},
        {make_error(EACCES), io_error, Verdict::ask_another},
        {make_error(EIO), io_error, Verdict::believe_longer},
        {make_error(EIO), {{third, EACCES}, {self, ETIMEDOUT}, {other, EIO}}, Verdict::believe_longer},
        {nothing(), none, Verdict::ask_another},
        {nothing(), io_error, Verdict::ask_another},
        {nothing(), empty, Verdict::believe_longer},
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(Opinions(rows[i].findings).on(*rows[i].found, self), rows[i].verdict) << "row " << i;
    }
}

TEST(Opinions, OneOfEachReader) {
    Opinions opinions({{other, ETIMEDOUT}});
    opinions.set({self, ETIMEDOUT});
    opinions.set({self, EIO});
    EXPECT_EQ(opinions.findings(), (std::vector<Finding>{{other, ETIMEDOUT}, {self, EIO}}));
    EXPECT_EQ(opinions.readers(), (std::vector<Rank>{other, self}));
    EXPECT_EQ(opinions.of(self)->error, EIO);
    EXPECT_EQ(opinions.of(third), nullptr);
    EXPECT_EQ(opinions.slow_besides(self), std::vector<Rank>{other});
    EXPECT_TRUE(opinions.slow_besides(other).empty());
    opinions.forget(self);
    opinions.forget(other);
    EXPECT_TRUE(opinions.empty());
}

// What answers instead of an object: the error, or as much of nothing as the key's kind can be.
TEST(Opinions, AFindingIsAnAnswer) {
    EXPECT_EQ(object_of({self, EIO}, ObjectKind::extent)->error().value(), EIO);
    EXPECT_NE(object_of({self, Finding::empty}, ObjectKind::directory)->directory(), nullptr);
    EXPECT_NE(object_of({self, Finding::empty}, ObjectKind::entry)->listing(), nullptr);
    const ObjectPtr of_names = object_of({self, Finding::empty}, ObjectKind::names);
    EXPECT_NE(of_names->directory(), nullptr);
    EXPECT_EQ(of_names->lifetime, error_lifetime);
    for (const auto kind : {ObjectKind::directory, ObjectKind::entry, ObjectKind::names}) {
        EXPECT_EQ(doubt_of(*object_of({self, Finding::empty}, kind)), Finding::empty);
    }
}

TEST(Opinions, HowLongAnAnswerCounts) {
    EXPECT_EQ(for_this_node(names())->lifetime, doubtful_lifetime);
    EXPECT_EQ(for_this_node(make_error(EIO))->lifetime, error_lifetime);
    EXPECT_EQ(confirmed(make_error(EIO))->lifetime, 2 * error_lifetime);
    EXPECT_EQ(confirmed(names())->lifetime, std::nullopt);
    const ObjectPtr directory = for_this_node(make_object(Directory()));
    EXPECT_FALSE(directory->directory()->is_proven);
    EXPECT_FALSE(directory->is_for_others);
}

}  // namespace
}  // namespace copper
