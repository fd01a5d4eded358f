// Records of the inodes that the kernel knows, in memory that outlives the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "cache/object.hpp"
#include "fuse/number_space.hpp"

namespace copper {

// Names an inode to the kernel. (Attributes::inode is its number on the backing filesystem.)
using InodeId = std::uint64_t;

// See inode_table.hpp.
enum class InodeState : std::uint8_t { listed, read, kept, kept_and_read, nameless };

// Records of inodes, one after the other, each with its name. An inode has one record, the only copy of its
// data. If the process is killed, the records are valid:
// - A record counts once the stored end of the records is behind it.
// - Counts and states change in place. For new attributes, the inode gets a new record, and then the old one
//   is removed. If both exist, the later one is right.
//
// There are two halves. If one holds mostly removed records, its other records are copied into the second
// half, and then the halves are swapped.
//
// Not thread-safe; belongs to an InodeTable.
class InodeRecords {
  public:
    // For some 28 million inodes. Only what is used takes memory.
    static constexpr std::size_t memory_bytes_max = std::size_t{8} << 30;

    struct Record {
        InodeId inode;  // 0: removed
        InodeId parent;
        std::uint64_t lookups;
        std::uint32_t children : 31;       // inodes below it; a successor counts anew
        std::uint32_t is_doubted : 1 = 0;  // InodeTable::doubt()
        InodeState state;
        std::uint8_t name_bytes;
        // A mark of the Version that the Listing had told when a read found another one; 0: none was found.
        std::uint16_t outdated = 0;
        NumberSpace numbers;  // of the filesystem that it lies on
        Attributes attributes;

        std::string_view name() const {
            return {reinterpret_cast<const char*>(this) + sizeof(Record), name_bytes};
        }
    };
    // The place of a record, in units of 8 bytes; constant until rewrite(). 0: none.
    using Position = std::uint32_t;

    // `memory`: zeros, or the records of another process. At most memory_bytes_max.
    explicit InodeRecords(std::span<std::byte> memory);

    Record& at(Position position) const {
        return *reinterpret_cast<Record*>(memory_.data() + std::size_t{position} * unit_bytes);
    }

    // 0 if there is no room. REQUIRES: `name` has at most 255 bytes.
    Position add(const Record& record, std::string_view name);
    void remove(Position position);

    static void set_state(Record& record, InodeState state);
    static void set_lookups(Record& record, std::uint64_t lookups);

    void for_each(const std::function<void(Position)>& visit) const;

    // The highest number that any inode has had.
    InodeId last_inode() const;

    // Most of the memory holds removed records.
    bool should_be_rewritten() const;
    // Moves all records.
    void rewrite();

  private:
    static constexpr std::size_t unit_bytes = 8;
    static_assert(memory_bytes_max / unit_bytes <= UINT32_MAX);

    struct Head;
    std::span<std::byte> half(std::uint32_t which) const;
    Position append(std::uint32_t which, const Record& record, std::string_view name);

    Head* head_;
    std::span<std::byte> memory_;
    std::size_t half_bytes_;
    std::size_t removed_bytes_ = 0;
};

}  // namespace copper
