// The inodes that the kernel knows, in memory that outlives the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "cache/object.hpp"

namespace copper {

using NodeId = std::uint64_t;

// Records of inodes, one after the other. A record is there when the log's end says so, and its fields change
// in place, so a process that is killed leaves the log whole: without the inode that it was adding, which the
// kernel has not heard of, or with it.
//
// There are two halves: what is left of one that holds mostly removed inodes is written into the other, and
// then the halves are swapped.
//
// Not thread-safe; belongs to an InodeTable.
class InodeLog {
  public:
    static constexpr std::size_t half_bytes = std::size_t{1} << 30;
    static constexpr std::size_t memory_bytes = 4096 + 2 * half_bytes;

    struct State {
        std::uint64_t lookups = 0;
        bool is_named = true;  // its name still means this inode
        bool attributes_known = true;
        bool bytes_handed_out = false;
        bool is_kept = false;
        bool operator==(const State&) const = default;
    };
    struct Record;  // opaque, at one place until rewrite()

    InodeLog() = default;  // keeps nothing
    // `memory`: zeros, or what another process has left.
    explicit InodeLog(std::span<std::byte> memory);

    // Nullptr if it is full (about five million inodes) or keeps nothing. Then it is not whole any more.
    Record* add(NodeId node, NodeId parent, std::string_view name, const State& state,
                const Attributes& attributes);
    // REQUIRES: `record` is not nullptr; attributes do not change once bytes are handed out.
    void change(Record* record, const State& state, const Attributes& attributes);
    void remove(Record* record);

    bool is_whole() const;
    // No node had a higher number.
    NodeId last_node() const;

    struct Inode {
        Record* record;
        NodeId node;
        NodeId parent;
        std::string_view name;
        State state;
        Attributes attributes;
    };
    void for_each(const std::function<void(const Inode&)>& visit) const;

    // Most of it tells of inodes that are gone.
    bool should_be_rewritten() const;
    // Writes what is left anew. `moved` tells each node's new record.
    void rewrite(const std::function<void(NodeId, Record*)>& moved);

  private:
    struct Head;
    Head* head_ = nullptr;
    std::span<std::byte> half(std::uint32_t which) const;
    Record* append(std::uint32_t which, std::uint64_t& end, const Inode& inode);
    std::span<std::byte> memory_;
    std::size_t removed_bytes_ = 0;
};

}  // namespace copper
