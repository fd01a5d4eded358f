// Which path the kernel means by a node id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/guarded.hpp"
#include "cache/object.hpp"
#include "cache/read_ahead.hpp"
#include "fuse/inode_log.hpp"

namespace copper {

inline constexpr NodeId root_node = 1;

// The inodes that the kernel knows. Thread-safe: one lock, held for a few map operations, and nothing inside
// is ever referred to from outside.
//
// An inode lives as long as the kernel counts lookups of it or has an inode below it. Memory for each is
// bounded: the last name (not the whole path), its parent's id and the attributes; about 300 bytes.
class InodeTable {
  public:
    // So many inodes are kept, though the kernel forgot them, because they know better than a Listing.
    static constexpr std::size_t kept_max = 65536;

    // With what `log` tells of the process before, and kept up in it.
    explicit InodeTable(const Attributes& root, InodeLog log = {});

    struct Told {
        NodeId node = 0;
        Attributes attributes;  // what to tell the kernel; see look_up()
    };

    // Counts one lookup of `name` in `parent` and returns its node: the same one as long as it is known.
    // Nothing if `parent` is unknown (the kernel never asks that).
    //
    // The kernel is told one type and one size of a node, ever: a file of another one gets another node, and
    // whoever has the old file open keeps the old node. The same for a newer version than the one whose bytes
    // the kernel has. If `attributes` are of an older version (an older Listing), the node's are told.
    std::optional<Told> look_up(NodeId parent, std::string_view name, const Attributes& attributes);

    enum class Known { still, no_more };
    Known forget(NodeId node, std::uint64_t lookups);

    // The name gets a new node when it is looked up again; whoever has the old file open keeps the old node.
    void detach(NodeId node);

    std::optional<std::string> path(NodeId node);

    struct Place {
        NodeId parent = 0;
        std::string directory;  // path of the parent
        std::string name;       // empty: the root
    };
    std::optional<Place> place(NodeId node);

    // What the kernel was last told; nothing if the node is unknown or was dropped by refresh.
    std::optional<Attributes> attributes(NodeId node);
    void set_attributes(NodeId node, const Attributes& attributes);

    // The backing inode number, for "." and "..".
    std::uint64_t inode_number(NodeId node);

    enum class Bytes { some, none };
    enum class Verdict {
        current,  // of the version that the kernel has been told
        adopted,  // another version, but the kernel had no bytes yet: it is now the inode's
        other,    // another version than the bytes that the kernel has, or of another size
    };
    // Bytes of the version in `attributes` were found, and are about to be handed to the kernel unless there
    // are none.
    Verdict hand_out(NodeId node, const Attributes& attributes, Bytes bytes);

    // What to fetch ahead now that extents `read` of `extents` are read (ReadAhead).
    ExtentRange read_ahead(NodeId node, ExtentRange read, std::uint32_t extents, std::uint32_t window_max);

    // The file under `node`'s name is another one by now, with `attributes`: the name gets a new node, which
    // an older Listing does not change back, unless it has a node of that version, or a newer one, already.
    // Whoever has the old file open keeps the old node. Returns the place whose entry in the kernel is out of
    // date; nothing if the kernel does not know the node.
    std::optional<Place> supersede(NodeId node, const Attributes& attributes);

    std::optional<NodeId> find(std::string_view path);

    // `node` and all known below it.
    std::vector<NodeId> within(NodeId node);
    // Their attributes and the version of their bytes are unknown again; bytes asked for before have a
    // different epoch.
    void drop(const std::vector<NodeId>& nodes);
    std::uint64_t epoch();

    std::size_t size();
    // Whether a process that gets the log will know all inodes.
    bool is_lasting();

  private:
    struct Inode : InodeLog::State {
        NodeId parent = 0;
        std::uint32_t children = 0;
        std::string name;
        Attributes attributes;
        ReadAhead read_ahead;
        InodeLog::Record* record = nullptr;
    };
    struct Key {
        NodeId parent = 0;
        std::string_view name;  // in the Inode, whose address is stable in its map
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const {
            return std::hash<std::string_view>()(key.name) ^ (key.parent * 0x9e3779b97f4a7c15U);
        }
    };
    struct State {
        NodeId next = root_node + 1;
        std::uint64_t epoch = 0;
        std::size_t kept = 0;
        std::unordered_map<NodeId, Inode> inodes;
        std::unordered_map<Key, NodeId, KeyHash> names;
        InodeLog log;

        Inode* find(NodeId node);
        // REQUIRES: a save() follows.
        NodeId add(NodeId parent, std::string_view name);
        void save(NodeId node, Inode& inode);
        void restore();
        void remove(std::unordered_map<NodeId, Inode>::iterator inode);
        void release(NodeId node);
        Inode* find_same(NodeId parent, std::string_view name, const Attributes& attributes, NodeId& node);
        void detach(NodeId node, Inode& inode);
        void remove_if_unused(NodeId node);
        std::string path(const Inode& inode) const;
    };

    Guarded<State> state_;
};

}  // namespace copper
