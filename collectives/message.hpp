// What nodes say to each other.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cache/object.hpp"
#include "collectives/rank.hpp"

namespace copper {

// Messages in one lane between two nodes arrive in order; the lanes overtake each other.
enum class Lane : std::uint8_t {
    eager,  // one small message, latency counts
    bulk,   // announced, and received in place
};
inline constexpr std::size_t lane_count = 2;
// The largest body that travels in the eager lane.
inline constexpr std::size_t eager_body_bytes_max = 64U << 10;

// The highest Publication::sequence that a node has received from another one, by lane.
using Seen = std::array<std::uint64_t, lane_count>;

// What a node is good for. The order matters: see Membership.
enum class NodeState : std::uint8_t {
    serving,
    resigned,  // alive, but it reads nothing for others: its own mount is slow or broken
    suspect,   // does not answer; it may come back
    dead,      // has left
};

// What somebody knows of a node. Interests, objects, pings and their answers carry the latest, so that of all
// nodes only one has to find out.
struct News {
    Rank rank;
    std::uint32_t incarnation = 0;  // raised by the node itself alone
    NodeState state = NodeState::serving;
    bool operator==(const News&) const = default;
};
inline constexpr std::size_t news_told_max = 16;
inline constexpr std::uint32_t incarnation_max = 1U << 30;

// What a reader met when it tried to read an object, if that may be the fault of its own mount.
struct Finding {
    static constexpr int empty = 0;  // no such name, or none at all: perhaps nothing is mounted there

    Rank reader;
    int error = empty;  // an errno value; ETIMEDOUT: the read takes too long
    bool operator==(const Finding&) const = default;
};
inline constexpr std::size_t findings_max = 2;

// "I need this object": goes up the tree, to the object's reader.
struct Interest {
    ObjectKey key;
    // What the sender has received from the addressee. An addressee that has put the object on its way with a
    // later sequence knows that it is still in flight, and need not send it twice.
    Seen seen = {};
    // Above 0: the sender waited in vain. Answer even if the object seems to be in flight.
    std::uint32_t attempt = 0;
    // Nodes passed. Bounds a cycle between nodes that know different things of the membership.
    std::uint32_t hops = 0;
    Rank origin = {};  // a node whose own processes want it; others may want it too
    // Several nodes want this object, or have asked for the same objects of its group (Sharing).
    enum class Wanted : std::uint8_t { by_one_perhaps, by_several };
    Wanted wanted = Wanted::by_one_perhaps;
    // Not empty: these readers could not read it, so the addressee is to read it now.
    std::vector<Finding> findings = {};
    std::chrono::milliseconds spent{0};  // by them
    std::vector<News> news = {};
    bool operator==(const Interest&) const = default;
};

// "Read it yourself": to a node that asked for a file which, as far as the reader can see, no other node
// wants.
struct Decline {
    ObjectKey key;
    bool operator==(const Decline&) const = default;
};

// "It is being read: go on waiting." Goes from the node that reads to those who asked it, and on to those who
// asked them.
struct Working {
    ObjectKey key;
    std::chrono::milliseconds spent{0};  // on reading it; grows from message to message
    bool operator==(const Working&) const = default;
};

// An object on its way down.
struct Publication {
    enum class Spread : std::uint8_t {
        everyone,  // forwarded down the whole tree
        asked,     // forwarded to those who asked only
    };
    ObjectKey key;
    Rank root;               // the node that read it
    std::uint32_t tree = 0;  // that it goes down, if it is for everyone
    Spread spread = Spread::everyone;
    std::uint64_t serial = 0;    // numbers the broadcasts of `root`: a node forwards each of them once
    std::uint64_t sequence = 0;  // numbers all Publications of the sender in their lane, from 1
    Lane lane = Lane::eager;
    ObjectPtr object;
    std::vector<News> news = {};
};

// A question to every node, down the tree of `origin`; the Answers come back up the same tree, joined.
struct Call {
    std::uint64_t id = 0;
    Rank origin;
    std::string verb;
    std::string argument;
    std::chrono::milliseconds patience{0};  // how long the addressee may wait for the nodes below it
    // Whether a node that says nothing is held to be lost, or may still be about to start.
    enum class Silence : std::uint8_t { is_suspicious, is_expected };
    Silence silence = Silence::is_suspicious;
    bool operator==(const Call&) const = default;
};

struct Answer {
    struct Part {
        Rank rank;
        std::string text;
        bool operator==(const Part&) const = default;
    };
    std::uint64_t id = 0;
    Rank origin;
    std::vector<Part> parts;
    // So many Answers together have all the parts that the sender has.
    std::uint32_t answers = 1;
    bool operator==(const Answer&) const = default;
};
// Of one node, and of all parts of an Answer together: what fits into a body, with what is around it.
inline constexpr std::size_t answer_text_bytes_max = object_bytes_max - (64U << 10);

// "Are you there?" and "I am."
struct Ping {
    std::vector<News> news = {};
    bool operator==(const Ping&) const = default;
};
struct Pong {
    std::vector<News> news = {};
    bool operator==(const Pong&) const = default;
};

using Message = std::variant<Interest, Publication, Decline, Working, Call, Answer, Ping, Pong>;

}  // namespace copper
