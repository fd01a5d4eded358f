// Evidence whether the nodes of a job use the same objects, from their requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "cache/object.hpp"
#include "fabric/rank.hpp"

namespace copper {

// What one node uses costs one node: an object goes to the node that asks for it. Once a second node has
// asked for the same object, the group it belongs to is shared, and the next objects of the group are pushed
// to all nodes ahead of their asking: `window_first` of them, then none until a second node asks for the same
// object again, then twice as many, and so on. So a group that all nodes use costs a request now and then,
// and a group that only one node goes on using stops being pushed.
//
// The objects of a directory make three groups: its names and attributes; its small files and the beginnings
// of its large ones; and the rest of its large files, of which each is judged for itself. Pushing a large
// file to all is expensive, so enough nodes must have asked for it (the square root of all). Nodes that use
// the same names may well use the same files: those names let the first small files be pushed.
//
// Where different nodes ask for different files of a directory, and hardly one asks for another's, each node
// is better off reading its own: Verdict::own.
//
// Interests merge on their way, so the reader hears of one node where many ask. A node that merges has seen
// the others, and says so with its next interest (Interest::Wanted::by_several). So each node keeps this
// evidence, not only readers.
//
// Deterministic, not thread-safe; bounded: what is forgotten is judged anew, which costs time, nothing else.
class Sharing {
  public:
    struct Options {
        std::uint32_t nodes = 1;
        std::uint32_t window_first = 4;
        std::uint32_t window_max = 1024;
        // After this many unpushed new objects without a second asker, the window starts small again. One
        // node may be so far ahead of the next one.
        std::uint32_t lead_max = 8;
        std::size_t groups_max = 4096;
        std::size_t objects_max = 1U << 16;  // of all groups
    };
    explicit Sharing(Options options);

    enum class Verdict : std::uint8_t { unknown, shared, own };
    // all: of each node, programs will use the object. It is shared, whatever its group is.
    enum class Askers : std::uint8_t { one, several, all };

    // `node` asks for the object, perhaps with others.
    void note(const ObjectKey& key, Rank node, Askers askers = Askers::one);
    // The object is pushed to all, so nobody will ask for it.
    void note_pushed(const ObjectKey& key);
    Verdict verdict(const ObjectKey& key) const;
    // Whether this node has seen several nodes ask for the same object of the group since the last call. If
    // so, its next interest in the group tells the nodes above.
    bool take_evidence(const ObjectKey& key);

  private:
    enum class Kind : std::uint64_t { names, small_files, large_files };
    enum class GroupId : std::uint64_t {};
    // An object, or a large file.
    struct Object {
        std::set<Rank> nodes;  // at most as many as make it shared
        std::uint32_t interests = 0;
        bool is_of_several = false;
        bool is_of_all = false;
    };
    struct Group {
        std::map<std::uint64_t, Object> objects;  // by the hash of key or path
        // Of objects with enough requests to judge: how many several nodes use, and how many one node uses.
        std::int64_t of_several = 0;
        std::int64_t of_one = 0;
        std::map<Rank, std::int64_t> of_node;
        std::uint32_t window = 0;
        std::uint32_t left = 0;  // of the window
        std::uint32_t since_evidence = 0;
        bool is_evidence_new = false;
    };
    struct Place {
        Kind kind;
        GroupId group;
        GroupId small_files;  // of the same directory
        std::uint64_t object;
    };

    static Place place_of(const ObjectKey& key);
    Group& group_of(GroupId id);
    const Group& known(GroupId id) const;
    void forget(Group& group);
    bool forget_object(Group& group, const Place& place);
    void count(Group& group, const Place& place, const Object& object, int by) const;
    void open_window(Group& group) const;
    bool is_shared(const Object& object) const { return object.nodes.size() >= nodes_to_share_; }

    const Options options_;
    const std::size_t nodes_to_share_;
    std::unordered_map<GroupId, Group> groups_;
    std::deque<GroupId> oldest_;
    std::size_t objects_ = 0;
};

}  // namespace copper
