// A piece of a directory's names, packed: so the names of several directories of a million entries fit into
// the memory that a reader has for them. Internal to cache/backing/.
#pragma once

#include <cstddef>
#include <string>

#include "cache/object.hpp"

namespace copper {

// Immutable, so threads may share one.
class PackedNames {
  public:
    // REQUIRES: names only, without targets and marks.
    explicit PackedNames(const Listing& names);

    Listing names() const;  // takes some 0.2 ms for piece_entries
    std::size_t bytes() const;

  private:
    std::string packed_;
    std::size_t plain_bytes_ = 0;
    std::size_t count_ = 0;
};

}  // namespace copper
