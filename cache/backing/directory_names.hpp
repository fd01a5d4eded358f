// The names of a directory while it is being read. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/object.hpp"

namespace copper {

// All names share two blocks of memory. Not thread-safe, but threads may share an immutable one.
class DirectoryNames {
  public:
    // A directory that changes during the read can repeat a name. REQUIRES: at most directory_entries_max.
    void add(std::string_view name, std::uint64_t inode, std::uint32_t type);
    void sort_and_drop_repeats();

    std::size_t size() const { return slots_.size(); }
    std::string_view text(std::size_t index) const { return text_of(slots_[index]); }

    // REQUIRES for all functions below: sorted.
    std::optional<std::size_t> find(std::string_view name) const;
    void set_inode(std::size_t index, std::uint64_t inode) { slots_[index].inode = inode; }
    void set_type(std::size_t index, std::uint32_t type) { slots_[index].type = type; }
    // In ascending order.
    void erase(const std::vector<std::size_t>& indexes);
    bool has_type(std::size_t index) const { return slots_[index].type != 0; }

    Directory directory() const;
    // REQUIRES: the directory has such a piece.
    Listing piece(std::uint32_t number) const;

  private:
    struct Slot {
        std::uint64_t inode = 0;
        std::uint32_t type = 0;
        std::uint32_t text_offset = 0;
        std::uint8_t text_bytes = 0;
    };
    std::string_view text_of(const Slot& slot) const {
        return {text_.data() + slot.text_offset, slot.text_bytes};
    }

    std::vector<Slot> slots_;
    std::string text_;
};

}  // namespace copper
