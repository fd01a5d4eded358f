#include "profile/replay.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/path.hpp"
#include "tests/support/directory_object.hpp"
#include "tests/support/drop.hpp"

namespace copper {
namespace {

using State = Replay::State;

// A cache whose objects arrive when the test says so, from a tree of files of these sizes.
class ReplayTest : public testing::Test {
  protected:
    struct Asked {
        ObjectKey key;
        FetchFor why;
    };

    Attributes attributes_of(const std::string& path) const {
        const auto file = files.find(path);
        if (file == files.end()) {
            return {.inode = 6, .mode = S_IFDIR};
        }
        return {.inode = 5,
                .size = file->second,
                .blocks = segments.contains(path) ? 0 : file->second / 512 + 1,
                .mode = S_IFREG};
    }
    std::vector<Listing::NewEntry> entries_of(const std::string& directory) const {
        std::set<std::string> names;
        for (const auto& [path, size] : files) {
            if (path != directory && is_within(path, directory)) {
                const std::string rest = path.substr(directory.size() + 1);
                names.insert(rest.substr(0, rest.find('/')));
            }
        }
        std::vector<Listing::NewEntry> entries;
        for (const auto& name : names) {
            entries.push_back(
                {.name = name, .target = {}, .attributes = attributes_of(join_path(directory, name))});
        }
        return entries;
    }
    ObjectPtr object_of(const ObjectKey& key) const {
        const bool is_there = files.contains(key.path) || !entries_of(key.path).empty();
        if (key.kind == ObjectKind::entry) {
            std::vector<Listing::NewEntry> entry;
            if (is_there) {
                entry.push_back({.name = std::string(base_name(key.path)),
                                 .target = {},
                                 .attributes = attributes_of(key.path)});
            }
            return make_object(Listing(entry, Listing::Detail::attributes));
        }
        if (!is_there) {
            return make_error(ENOENT);
        }
        switch (key.kind) {
            case ObjectKind::directory:
                return make_object(test::directory_of(entries_of(key.path)));
            case ObjectKind::batch: {
                auto entries = entries_of(key.path);
                std::erase_if(entries,
                              [&](const auto& entry) { return not_in_batches.contains(entry.name); });
                return entries.empty()
                           ? make_error(EAGAIN)
                           : make_object(Listing(std::move(entries), Listing::Detail::attributes));
            }
            case ObjectKind::extent:
                return make_object(Extent{.attributes = attributes_of(key.path), .blob = {}});
            case ObjectKind::data_map:
                return make_object(
                    DataMap{.attributes = attributes_of(key.path), .segments = segments.at(key.path)});
            default:
                return make_error(EIO);
        }
    }
    // Delivers what is asked for, and what is asked for then, until nothing is. At most so many.
    void arrive(std::size_t most = SIZE_MAX) {
        run_tasks();
        for (; most > 0 && !asked.empty(); --most) {
            const ObjectKey key = asked.front().key;
            asked.pop_front();
            cache.deliver(key, object_of(key));
            run_tasks();
        }
    }
    void run_tasks() {
        while (!tasks.empty()) {
            auto task = std::move(tasks.front());
            tasks.pop_front();
            task();
        }
    }
    std::vector<std::string> asked_for(ObjectKind kind) const {
        std::vector<std::string> paths;
        for (const Asked& one : all_asked) {
            if (one.key.kind == kind) {
                paths.push_back(one.key.path + "#" + std::to_string(one.key.index));
            }
        }
        return paths;
    }
    std::unique_ptr<Replay> replay(const Profile& profile, Replay::Options options = {}) {
        auto made = Replay::of_profile(cache, options, later, profile, log);
        EXPECT_TRUE(asked.empty()) << "it begins in the thread that runs it";
        run_tasks();
        return made;
    }
    std::unique_ptr<Replay> prefetch(const std::string& path, Replay::Options options = {}) {
        return Replay::of_path(cache, options, later, path);
    }

    std::map<std::string, std::uint64_t> files;
    std::map<std::string, std::vector<DataMap::Segment>> segments;  // of those files that have holes
    std::set<std::string> not_in_batches;                           // names
    std::deque<Asked> asked;
    std::vector<Asked> all_asked;
    std::deque<Replay::Task> tasks;
    Replay::Later later = [this](Replay::Task task) { tasks.push_back(std::move(task)); };
    UseLog log;
    Cache cache{{.budget_bytes = 1U << 30U, .on_demand = [this](const ObjectKey& key) { log.note(key); }},
                [this](const ObjectKey& key, FetchFor why) {
                    asked.push_back({key, why});
                    all_asked.push_back({key, why});
                }};
};

Profile profile_of(const std::vector<ObjectKey>& keys) {
    Profile profile;
    for (const ObjectKey& key : keys) {
        profile.uses.push_back({.key = key});
    }
    return profile;
}

TEST_F(ReplayTest, FetchesWhatTheProfileHoldsInItsOrderForEveryone) {
    files = {{"/t/b", 10}, {"/t/a", 3 * extent_bytes}};
    const auto running = replay(profile_of({{ObjectKind::directory, "/t"},
                                            {ObjectKind::entry, "/t/b"},
                                            {ObjectKind::extent, "/t/b"},
                                            {ObjectKind::extent, "/t/a", 2},
                                            {ObjectKind::batch, "/t"}}));
    EXPECT_EQ(running->progress().state, State::running);
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::extent), (std::vector<std::string>{"/t/b#0", "/t/a#2"}));
    for (const Asked& one : all_asked) {
        EXPECT_EQ(one.why, FetchFor::everyone) << to_string(one.key);
        const bool has_version = one.key.kind == ObjectKind::extent || one.key.kind == ObjectKind::batch;
        EXPECT_EQ(one.key.version != 0, has_version) << to_string(one.key);
    }
    const auto progress = running->progress();
    EXPECT_EQ(progress.state, State::done);
    EXPECT_EQ(progress.fetched, 5U);
    EXPECT_EQ(progress.bytes, 10 + extent_bytes);
    EXPECT_EQ(progress.failed, 0U);
}

TEST_F(ReplayTest, WhatFewNodesUsedIsNotSentToAll) {
    files = {{"/t/a", 10}, {"/t/b", 10}};
    Profile profile = profile_of({{ObjectKind::entry, "/t/a"}, {ObjectKind::entry, "/t/b"}});
    profile.nodes_asked = 16;
    profile.uses[0].nodes = 7;
    profile.uses[1].nodes = 8;
    const auto running = replay(profile);
    ASSERT_EQ(all_asked.size(), 2U);
    EXPECT_EQ(all_asked[0].why, FetchFor::guess);
    EXPECT_EQ(all_asked[1].why, FetchFor::everyone);
    arrive();
}

TEST_F(ReplayTest, WhatIsGoneOrHasShrunkCostsLittle) {
    files = {{"/t/small", 10}, {"/t/file", 10}};
    const auto running = replay(profile_of({{ObjectKind::extent, "/t/small", 1},
                                            {ObjectKind::extent, "/t/gone"},
                                            {ObjectKind::directory, "/gone"},
                                            {ObjectKind::batch, "/gone"},
                                            {ObjectKind::batch, "/t", 1},
                                            {ObjectKind::entry, "/t/file"}}));
    arrive();
    EXPECT_TRUE(asked_for(ObjectKind::extent).empty());
    EXPECT_EQ(running->progress().state, State::done);
    EXPECT_EQ(running->progress().failed, 5U);
    EXPECT_EQ(running->progress().error, ENOENT);
    EXPECT_EQ(running->progress().fetched, 1U);
}

TEST_F(ReplayTest, FewAreInFlight) {
    Profile profile;
    for (int i = 0; i < 100; ++i) {
        files["/t/" + std::to_string(i)] = 1;
        profile.uses.push_back({.key = {ObjectKind::entry, "/t/" + std::to_string(i)}});
    }
    const auto running = replay(profile, {.in_flight_max = 10});
    for (int arrived = 0; arrived < 90; ++arrived) {
        ASSERT_EQ(asked.size(), 10U);
        arrive(1);
    }
    arrive();
    EXPECT_EQ(running->progress().fetched, 100U);
}

TEST_F(ReplayTest, FewBytesAreInFlight) {
    Profile profile;
    files["/t/large"] = 1000 * extent_bytes;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        profile.uses.push_back({.key = {ObjectKind::extent, "/t/large", i}});
    }
    const auto running = replay(profile, {.in_flight_max = 10, .bytes_max = 100 * extent_bytes});
    std::size_t most = 0;
    while (!asked.empty() || !tasks.empty()) {
        most = std::max(most, asked.size());
        arrive(1);
    }
    EXPECT_LE(most, 32U);
    EXPECT_EQ(running->progress().state, State::full);
    EXPECT_LE(running->progress().bytes, 110 * extent_bytes);
}

TEST_F(ReplayTest, StopsIfProgramsUseSomethingElse) {
    Profile profile;
    for (int i = 0; i < 1000; ++i) {
        files["/t/" + std::to_string(i)] = 1;
        profile.uses.push_back({.key = {ObjectKind::entry, "/t/" + std::to_string(i)}});
    }
    const Replay::Options options{.in_flight_max = 4, .uses_to_judge = 20};
    for (const bool is_foretold : {true, false}) {
        log.note({ObjectKind::entry, "/t/before"});
        const auto running = replay(profile, options);
        arrive(4);
        for (int i = 0; i < 20; ++i) {
            const int number = (is_foretold ? 900 : 2000) + i;
            log.note({ObjectKind::entry, "/t/" + std::to_string(number)});
        }
        arrive();
        const auto progress = running->progress();
        EXPECT_EQ(progress.state, is_foretold ? State::done : State::wrong);
        EXPECT_EQ(progress.foretold, is_foretold ? 20U : 0U);
        EXPECT_EQ(progress.unforeseen, is_foretold ? 0U : 20U);
        for (const Asked& one : std::exchange(all_asked, {})) {
            test::drop(cache, one.key);
        }
        if (is_foretold) {
            EXPECT_EQ(progress.fetched, 1000U);
        } else {
            EXPECT_LT(progress.fetched, 20U);
        }
    }
}

TEST_F(ReplayTest, APathIsFetchedWithEverythingBelow) {
    files = {{"/t/a", 10}, {"/t/b/c", extent_bytes + 1}, {"/t/b/d/e", 0}, {"/t/b/d/f", 5}, {"/u/x", 1}};
    const auto running = prefetch("/t");
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::extent),
              (std::vector<std::string>{"/t/a#0", "/t/b/c#0", "/t/b/c#1", "/t/b/d/f#0"}));
    EXPECT_EQ(asked_for(ObjectKind::directory), (std::vector<std::string>{"/t#0", "/t/b#0", "/t/b/d#0"}));
    EXPECT_EQ(asked_for(ObjectKind::entry), std::vector<std::string>{"/t#0"}) << "attributes come in batches";
    EXPECT_EQ(running->progress().state, State::done);
    EXPECT_EQ(running->progress().bytes, 10 + extent_bytes + 1 + 5);
}

TEST_F(ReplayTest, WhatABatchLeavesOutIsAskedForAlone) {
    files = {{"/t/a", 10}, {"/t/b/c", 5}, {"/t/d", 5}, {"/t/gone", 5}};
    not_in_batches = {"a", "b", "gone"};
    const auto running = prefetch("/t");
    arrive(2);  // the entry of /t, and its names
    files.erase("/t/gone");
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::entry),
              (std::vector<std::string>{"/t#0", "/t/a#0", "/t/b#0", "/t/gone#0"}));
    EXPECT_EQ(asked_for(ObjectKind::extent), (std::vector<std::string>{"/t/d#0", "/t/a#0", "/t/b/c#0"}));
    EXPECT_EQ(running->progress().state, State::done);
    EXPECT_EQ(running->progress().failed, 0) << "a name may be gone";
    const auto fetched =
        asked_for(ObjectKind::directory).size() + asked_for(ObjectKind::batch).size() + 3 + 3;
    EXPECT_EQ(running->progress().fetched, fetched) << "with three entries and three extents";
}

TEST_F(ReplayTest, ADirectoryInWhichEverythingHasJustChangedIsFetched) {
    files = {{"/t/a", 10}};
    not_in_batches = {"a"};
    const auto running = prefetch("/t");
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::extent), std::vector<std::string>{"/t/a#0"});
    EXPECT_EQ(running->progress().failed, 0);
}

TEST_F(ReplayTest, OnlyTheExtentsThatHaveDataAreFetched) {
    files = {{"/t/holes", 6 * extent_bytes + 5}, {"/t/nothing", 2 * extent_bytes}};
    segments = {{"/t/holes",
                 {{extent_bytes - 1, extent_bytes + 1},
                  {extent_bytes + 100, extent_bytes + 200},
                  {6 * extent_bytes, 6 * extent_bytes + 5}}},
                {"/t/nothing", {}}};
    const auto running = prefetch("/t");
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::data_map), (std::vector<std::string>{"/t/holes#0", "/t/nothing#0"}));
    EXPECT_EQ(asked_for(ObjectKind::extent),
              (std::vector<std::string>{"/t/holes#0", "/t/holes#1", "/t/holes#6"}));
    EXPECT_EQ(running->progress().bytes, 2 * extent_bytes + 5);
    EXPECT_EQ(running->progress().left, 0U);
    EXPECT_EQ(running->progress().state, State::done);
}

TEST_F(ReplayTest, AMapInAProfileIsOfThePresentVersion) {
    files = {{"/t/holes", 2 * extent_bytes}};
    segments = {{"/t/holes", {}}};
    const auto running = replay(profile_of({{ObjectKind::data_map, "/t/holes"}}), {});
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::data_map), std::vector<std::string>{"/t/holes#0"});
    EXPECT_EQ(asked_for(ObjectKind::extent), std::vector<std::string>());
    EXPECT_EQ(running->progress().failed, 0U);
}

TEST_F(ReplayTest, AHugeFileTakesNoTime) {
    constexpr std::uint64_t extents = std::uint64_t{1} << 40;
    files = {{"/t/a", 10}, {"/t/huge", extents * extent_bytes}};
    const auto running = prefetch("/t", {.in_flight_max = 4, .bytes_max = 100 * extent_bytes});
    arrive(4);
    EXPECT_EQ(asked_for(ObjectKind::extent),
              (std::vector<std::string>{"/t/a#0", "/t/huge#0", "/t/huge#1", "/t/huge#2", "/t/huge#3"}));
    EXPECT_EQ(running->progress().left, extents);
    arrive();
    EXPECT_EQ(running->progress().state, State::full);
    EXPECT_EQ(running->progress().left, 0U);
    EXPECT_EQ(asked_for(ObjectKind::extent).size(), 101U);
}

TEST_F(ReplayTest, WhatEachNodeReadsForItselfIsLeftOut) {
    files = {{"/t/small", 10}, {"/t/large", 11}};
    const Replay::Options options{.file_bytes_max = 10};
    const auto running = replay(profile_of({{ObjectKind::extent, "/t/large"}}), options);
    arrive();
    EXPECT_EQ(running->progress().failed, 1U);
    const auto fetching = prefetch("/t", options);
    arrive();
    EXPECT_EQ(asked_for(ObjectKind::extent), std::vector<std::string>{"/t/small#0"});
    EXPECT_EQ(fetching->progress().failed, 0U);
}

TEST_F(ReplayTest, APathCanBeAFileOrNothing) {
    files = {{"/t/a", 10}};
    const auto file = prefetch("/t/a");
    const auto nothing = prefetch("/t/none");
    arrive();
    EXPECT_EQ(file->progress().bytes, 10U);
    EXPECT_EQ(nothing->progress().state, State::done);
    EXPECT_EQ(nothing->progress().error, ENOENT);
}

TEST_F(ReplayTest, EndsWithItsOwner) {
    files = {{"/t/a", 10}, {"/t/b", 10}};
    auto running = prefetch("/t");
    arrive(1);
    running.reset();
    arrive();
    EXPECT_TRUE(asked_for(ObjectKind::extent).empty());
}

TEST_F(ReplayTest, WhatTheCacheHoldsIsNotAskedForAgain) {
    files = {{"/t/a", 10}};
    prefetch("/t")->progress();
    arrive();
    Profile profile;
    for (int i = 0; i < 100000; ++i) {
        profile.uses.push_back({.key = {ObjectKind::entry, "/t"}});
    }
    all_asked.clear();
    const auto running = replay(profile);
    arrive();
    EXPECT_EQ(running->progress().fetched, 100000U) << "and nothing runs out of stack";
    EXPECT_TRUE(all_asked.empty());
}

}  // namespace
}  // namespace copper
