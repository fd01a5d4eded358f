// What the tests of the Mover and of its parts share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/mover.hpp"

namespace copper::test {

using namespace std::chrono_literals;

inline constexpr TimePoint start{1h};
inline const Trees trees({"/app"});
inline const ObjectKey listing_key{ObjectKind::directory, "/app/lib"};

inline ObjectPtr small_object(int number = 1) {
    return make_object(Xattrs{{"user.number", std::to_string(number)}});
}

inline ObjectPtr large_object() {
    return make_object(
        Extent{.attributes = {}, .blob = {std::make_shared<std::byte[]>(extent_bytes), extent_bytes}});
}

inline ObjectKey extent_of(const std::string& name, std::uint32_t index) {
    return {ObjectKind::extent, listing_key.path + '/' + name, index};
}

// Records what a Mover does, in order. Tests carry out its reads and messages themselves.
class Recorder final : public Mover::Effects {
  public:
    struct Sent {
        std::vector<Rank> to;
        Message message;
    };

    ObjectPtr find(const ObjectKey& key) override {
        const auto entry = cache.find(key);
        return entry == cache.end() ? nullptr : entry->second;
    }
    void deliver(const ObjectKey& key, const ObjectPtr& object) override {
        log.push_back("deliver");
        delivered.push_back(object);
        if (keeps) {
            cache[key] = object;
        }
    }
    void is_for_all(const ObjectKey& key, const ObjectPtr&) override { for_all.push_back(key); }
    void read(const ObjectKey& key) override {
        log.push_back("read");
        reads.push_back(key);
    }
    TimePoint latest_call(const ObjectKey&) override { return latest; }
    std::string filesystem_of(const std::string& path) override {
        return path.starts_with(hung) ? hung : "/";
    }
    void send(std::span<const Rank> to, const Message& message) override {
        log.push_back("send");
        sent.push_back({{to.begin(), to.end()}, message});
    }

    std::uint64_t backlog_bytes(Rank to) override { return backlogs[to]; }
    std::uint64_t backlog_bytes() override {
        return std::accumulate(backlogs.begin(), backlogs.end(), std::uint64_t{0},
                               [](std::uint64_t sum, const auto& backlog) { return sum + backlog.second; });
    }

    template <typename T>
    std::vector<std::pair<std::vector<Rank>, T>> take() {
        std::vector<std::pair<std::vector<Rank>, T>> taken;
        for (const Sent& one : sent) {
            if (const T* message = std::get_if<T>(&one.message)) {
                taken.emplace_back(one.to, *message);
            }
        }
        std::erase_if(sent, [](const Sent& one) { return std::holds_alternative<T>(one.message); });
        return taken;
    }

    bool keeps = true;
    TimePoint latest;
    std::string hung = "/app/hung";  // another filesystem
    std::map<Rank, std::uint64_t> backlogs;
    std::map<ObjectKey, ObjectPtr> cache;
    std::vector<std::string> log;
    std::vector<ObjectKey> reads;
    std::vector<ObjectPtr> delivered;
    std::vector<ObjectKey> for_all;
    std::vector<Sent> sent;
};

// A node of a job of 15, in trees of two children each.
struct Place {
    static constexpr std::uint32_t size = 15;

    explicit Place(Rank self) : membership({.size = size, .self = self, .arity = 2, .readers = 4}) {}

    Route route(const ObjectKey& key) const { return membership.route(key); }
    Rank reader(const ObjectKey& key) const { return route(key).reader; }
    std::vector<Rank> children(const ObjectKey& key) const { return membership.children(route(key)); }

    Membership membership;
    Recorder effects;
};

// Whoever reads pushes to all, unless a test is about whom objects are pushed to.
struct Node : Place {
    explicit Node(Rank self, Mover::Options options = {.spreading = {.push = Push::always}})
        : Place(self), mover(options, trees, membership, effects) {}

    void suspect(Rank rank, TimePoint now) {
        membership.suspect(rank);
        mover.membership_changed(now);
        mover.tick(now);
    }
    void suspect_all_others(TimePoint now) {
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            if (Rank{rank} != membership.self()) {
                suspect(Rank{rank}, now);
            }
        }
    }
    void note(const News& news, TimePoint now) {
        membership.note(news);
        mover.membership_changed(now);
        mover.tick(now);
    }

    Mover mover;
};

// Pushing, with a deadline.
inline Mover::Options deadline(std::chrono::milliseconds time) {
    return {.deadline = time, .spreading = {.push = Push::always}};
}

// Lets time pass until then, in steps of a millisecond.
inline void pass(Node& node, TimePoint from, TimePoint until) {
    for (TimePoint now = from; now <= until; now += 1ms) {
        node.mover.tick(now);
    }
}

inline Rank reader_of(const ObjectKey& key) {
    return Place(Rank{0}).reader(key);
}

// The place `position` steps of the ring away from the reader: position 1 and 2 are its children, 3 to 6
// theirs.
inline Rank at(const ObjectKey& key, std::uint32_t position) {
    return Rank{(reader_of(key).value + position) % Place::size};
}

// The root of the tree that an extent takes, the only child of its reader; and a child of that root.
inline Rank relay_of(const ObjectKey& key) {
    return Place(reader_of(listing_key)).children(key).at(0);
}
inline Rank below_relay(const ObjectKey& key) {
    return Place(relay_of(key)).children(key).at(0);
}

inline Publication broadcast_of(const ObjectKey& key, ObjectPtr object, std::uint64_t serial,
                                std::uint64_t sequence) {
    return {.key = key,
            .root = reader_of(key),
            .tree = Place(Rank{0}).route(key).tree,
            .spread = Publication::Spread::everyone,
            .serial = serial,
            .sequence = sequence,
            .lane = object->bytes() > eager_body_bytes_max ? Lane::bulk : Lane::eager,
            .object = object};
}

}  // namespace copper::test
