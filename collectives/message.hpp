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

// A node, and how long ago something was that concerns it.
struct Sighting {
    Rank rank;
    std::chrono::milliseconds ago{0};
    bool operator==(const Sighting&) const = default;
};

// What the sender holds of its peers, the latest of each if they are many. Objects and interests carry it, so
// that of all nodes of a tree only one has to find out.
struct View {
    // Grows with each change of the sender's view, and is never below what it has been told.
    std::uint64_t epoch = 0;
    // Held to be lost; nothing has been heard of them for so long. Who has heard one of them since, or has
    // taken it back into a view of a later epoch, knows better.
    std::vector<Sighting> suspects = {};
    // Were held to be lost, and have been heard, last so long ago.
    std::vector<Sighting> returned = {};
    bool operator==(const View&) const = default;
};
inline constexpr std::size_t suspects_told_max = 64;
inline constexpr std::size_t returned_told_max = 16;
inline constexpr std::uint64_t epoch_max = std::uint64_t{1} << 48;

// "I need this object": goes up the tree that is rooted at the object's reader.
struct Interest {
    ObjectKey key;
    // What the sender has received from the addressee. An addressee that has put the object on its way with a
    // later sequence knows that it is still in flight, and need not send it twice.
    Seen seen = {};
    std::uint32_t attempt =
        0;  // above 0: the sender waited in vain; answer whatever is believed to be in flight
    std::uint32_t hops =
        0;  // nodes passed; bounds a cycle between nodes whose views of the membership differ
    // So that the addressee does not wait for one that is lost; or, by another tree, for the sender itself.
    View view = {};
    enum class Scope : std::uint8_t {
        anywhere,  // the addressee is to get it if it has not
        at_hand,   // only if the addressee has it: otherwise it sends a Decline
        instead,   // the addressee is to read it: the reader, which sends this, cannot or is slow
    };
    Scope scope = Scope::anywhere;
    Rank origin = {};  // a node whose own processes want it; others may want it too
    enum class Wanted : std::uint8_t { by_one_perhaps, by_several };
    Wanted wanted = Wanted::by_one_perhaps;  // by_several: it is no use to decline it as unshared
    bool operator==(const Interest&) const = default;
};

// "You do not get it from me."
struct Decline {
    enum class Reason : std::uint8_t {
        not_at_hand,  // and that was all that was asked for
        unshared,     // by what the reader sees, no other node wants the file: whoever does is to read it
        unable,       // the addressee, which was to read it instead of the reader, cannot
    };
    ObjectKey key;
    Reason reason = Reason::not_at_hand;
    bool operator==(const Decline&) const = default;
};

// "It is being read: go on waiting." From the node that reads to those who asked it, and on to those who
// asked them.
struct Working {
    ObjectKey key;
    std::chrono::milliseconds spent{0};  // on reading it; grows from message to message
    bool operator==(const Working&) const = default;
};

// An object on its way down.
struct Publication {
    enum class Spread : std::uint8_t {
        everyone,  // forwarded down the whole tree of `root`
        asked,     // forwarded to those who asked only
    };
    ObjectKey key;
    Rank root;
    Spread spread = Spread::everyone;
    std::uint64_t serial = 0;    // numbers the broadcasts of `root`: a node forwards each of them once
    std::uint64_t sequence = 0;  // numbers all Publications of the sender in their lane, from 1
    Lane lane = Lane::eager;
    ObjectPtr object;
    View view = {};
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
    bool operator==(const Ping&) const = default;
};
struct Pong {
    bool operator==(const Pong&) const = default;
};

using Message = std::variant<Interest, Publication, Decline, Working, Call, Answer, Ping, Pong>;

}  // namespace copper
