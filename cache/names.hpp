// The names of a directory, out of a node's cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <variant>

#include "cache/cache.hpp"

namespace copper {

// A piece of a directory's names; `*names` lives as long as `holder`. If this version's names are gone,
// `names` is null, `holder` is the directory as it is now, and the cache keeps that. A caller in the middle
// of the old names must start again. On failure, `names` is null and `holder` is an error.
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
// The names are not available (for example, the directory may be searched but not read). Ask for the entry
// itself.
struct NamesUnavailable {};
// The batch (ObjectKind::batch, xattr_batch or acl_batch) that a name of the directory lies in.
ObjectKey batch_key(ObjectKind kind, const std::string& directory, const Present& place);
// Asks for the one behind it, if there is one, before anybody needs it.
void fetch_next_batch(Cache& cache, ObjectKind kind, const std::string& directory, const Present& place);
// The attributes of one name alone (ObjectKind::entry).
ObjectKey entry_key(const std::string& directory, const std::string& name);

using NameFound = std::variant<Present, Absent, NamesUnavailable, std::error_code>;

// Calls `waiter` once, as Cache::get does. `cache` must outlive this.
void find_name(Cache& cache, const std::string& directory, const std::string& name,
               std::function<void(const NameFound&)> waiter);

}  // namespace copper
