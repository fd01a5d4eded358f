// The names of a huge directory, piece by piece, out of a node's cache.
#pragma once

#include <functional>
#include <string>

#include "cache/cache.hpp"

namespace copper {

// Calls `waiter` once, as Cache::get does, with a piece of the directory that has this Index: a Listing
// without attributes. If nobody has these names any more, and the directory has others by now, `waiter` gets
// the directory's own object as it is now (a Listing with attributes, or an Index), which the cache then
// answers with, too. Whoever is in the middle of the old names must not go on with the new ones. Otherwise it
// gets an error. `cache` must outlive this.
void get_piece(Cache& cache, const std::string& directory, const ObjectPtr& index, std::uint32_t piece,
               Cache::Waiter waiter);

}  // namespace copper
