// The names of a directory, out of a node's cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <variant>

#include "cache/cache.hpp"

namespace copper {

// A piece of a directory's names: those of `*names`, which live as long as `holder`. If there are none,
// `holder` is an error; or, if nobody has the names of this version any more, the directory's own object as
// it is now, which the cache answers with from then on. Whoever is in the middle of the old names must not go
// on with the new ones.
struct Piece {
    ObjectPtr holder;
    const Listing* names = nullptr;
};

// Calls `waiter` once, as Cache::get does. REQUIRES: directory->directory() has such a piece. `cache` must
// outlive this.
void get_piece(Cache& cache, const std::string& path, const ObjectPtr& directory, std::uint32_t piece,
               std::function<void(const Piece&)> waiter);

// What the names of a directory tell of one name.
struct Present {
    ObjectPtr directory;         // its own object
    std::uint64_t position = 0;  // among its names
};
struct Absent {
    ObjectPtr directory;
};
// The names are not to be had (the directory may be searched but not read, for instance): the entry itself is
// to be asked for.
struct Untold {};
// The batch (ObjectKind::batch or xattr_batch) that a name of the directory lies in.
ObjectKey batch_key(ObjectKind kind, const std::string& directory, const Present& place);

using NameFound = std::variant<Present, Absent, Untold, std::error_code>;

// Calls `waiter` once, as Cache::get does. `cache` must outlive this.
void find_name(Cache& cache, const std::string& directory, const std::string& name,
               std::function<void(const NameFound&)> waiter);

}  // namespace copper
