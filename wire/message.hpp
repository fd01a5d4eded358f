// The messages between nodes.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cache/cache.hpp"
#include "cache/object.hpp"
#include "fabric/fabric.hpp"

namespace copper {

// The highest Publication::sequence that a node has received from another node, by lane.
using Seen = std::array<std::uint64_t, lane_count>;

// The state of a node. The order matters: see Membership.
enum class NodeState : std::uint8_t {
    serving,
    resigned,  // alive, but reads nothing for others: its own mount is slow or broken
    suspect,   // does not answer; it may come back
    dead,      // has left
};

// A report about a node. Interests, objects, pings and their answers carry the latest reports, so only one
// node has to find out.
struct News {
    Rank rank;
    std::uint32_t incarnation = 0;  // raised only by the node itself
    NodeState state = NodeState::serving;
    bool operator==(const News&) const = default;
};
inline constexpr std::size_t news_told_max = 16;
inline constexpr std::uint32_t incarnation_max = 1U << 30;

// Why a reader could not read an object, if its own mount may be at fault.
struct Finding {
    static constexpr int empty = 0;  // no such name, or no names at all: perhaps nothing is mounted there

    Rank reader;
    int error = empty;  // an errno value; ETIMEDOUT: the read takes too long
    bool operator==(const Finding&) const = default;
};
inline constexpr std::size_t findings_max = 3;  // of readers that try one after the other

// "I need this object": goes up the tree, to the object's reader.
struct Interest {
    ObjectKey key;
    // What the sender has received from the addressee. If the addressee has sent the object with a later
    // sequence, the object is still in flight and need not be sent again.
    Seen seen = {};
    // Above 0: the sender waited in vain. Answer even if the object seems to be in flight.
    std::uint32_t attempt = 0;
    // Nodes passed. Limits a cycle between nodes that disagree on the membership.
    std::uint32_t hops = 0;
    Rank origin = {};  // a node whose own processes want it; other nodes may want it, too
    // Several nodes want this object, or have asked for the same objects of its group (Sharing).
    enum class Wanted : std::uint8_t { by_one_perhaps, by_several };
    Wanted wanted = Wanted::by_one_perhaps;
    FetchFor why = FetchFor::demand;  // demand if anybody waits for it
    // Not empty: these readers could not read it, so the addressee must read it now.
    std::vector<Finding> findings = {};
    std::chrono::milliseconds spent{0};  // by them
    // "A program now waits for what I asked you for as a guess." Never answered: the first interest is.
    bool is_urging = false;
    std::vector<News> news = {};
    bool operator==(const Interest&) const = default;
};

// "Read it yourself."
struct Decline {
    ObjectKey key;
    // What a node has found that has read it, and should not be believed of one node. Nothing: it is a file,
    // and its reader believes that no other node wants it.
    std::optional<Finding> found = {};
    bool operator==(const Decline&) const = default;
};

// "Somebody is going to read it: go on waiting." The node that reads sends it to its askers, and they pass it
// on to theirs.
struct Working {
    ObjectKey key;
    std::chrono::milliseconds spent{0};  // queued and reading it; grows from message to message
    // How long the filesystem has made no progress: since this read began; of a queued read, since the node
    // last began or ended one; of one that a full table has no room for, since an object came to that node.
    std::chrono::milliseconds still{0};
    std::uint64_t place_in_queue = 0;  // 1: it begins next; 0: it has begun
    bool operator==(const Working&) const = default;
};

// A job of so many nodes has so many trees (collectives/topology.hpp).
inline constexpr std::uint32_t trees_max = 16;
constexpr std::uint32_t tree_count(std::uint32_t nodes) {
    return std::min(nodes, trees_max);
}

// An object on its way down.
struct Publication {
    enum class Spread : std::uint8_t {
        everyone,  // forwarded down the whole tree
        asked,     // forwarded only to the nodes that asked
    };
    ObjectKey key;
    Rank root;               // the node that read it
    std::uint32_t tree = 0;  // its tree, if it is for everyone
    Spread spread = Spread::everyone;
    std::uint64_t serial = 0;    // numbers the broadcasts of `root`: a node forwards each of them once
    std::uint64_t sequence = 0;  // numbers all Publications of the sender in their lane, from 1
    Lane lane = Lane::eager;
    ObjectPtr object;
    std::vector<News> news = {};
};

// A question to every node, down the tree of `origin`. The Answers come back up the same tree, joined.
struct Call {
    std::uint64_t id = 0;
    Rank origin;
    std::string verb;
    std::string argument;
    std::chrono::milliseconds patience{0};  // how long the addressee may wait for the nodes below
    // Whether silence makes a node suspect, or the node may still be starting.
    enum class Silence : std::uint8_t { is_suspicious, is_expected };
    Silence silence = Silence::is_suspicious;
    bool operator==(const Call&) const = default;
};

struct Answer {
    struct Part {
        Rank rank;
        std::string text;
        std::vector<Rank> with = {};  // the nodes whose answers `text` includes, besides `rank`
        bool operator==(const Part&) const = default;
    };
    std::uint64_t id = 0;
    Rank origin;
    std::vector<Part> parts;
    // This many Answers together have all parts of the sender.
    std::uint32_t answers = 1;
    bool operator==(const Answer&) const = default;
};
// The limit for the answer of a node, and for all parts of an Answer together. Leaves room for the rest of a
// message.
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
