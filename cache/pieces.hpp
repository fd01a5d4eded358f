// Gets the names of a huge directory piece by piece from the node's cache.
#pragma once

#include <functional>
#include <string>

#include "cache/cache.hpp"

namespace copper {

// Calls `waiter` once, like Cache::get, with a piece of the directory that has this Index: a Listing without
// attributes. If no node has these names any more and the directory has changed, `waiter` gets the
// directory's present object instead (a Listing with attributes, or an Index), and the cache answers with
// that one from then on. A caller in the middle of the old names must not continue with the new ones.
// Otherwise `waiter` gets an error. `cache` must outlive the call of `waiter`.
void get_piece(Cache& cache, const std::string& directory, const ObjectPtr& index, std::uint32_t piece,
               Cache::Waiter waiter);

}  // namespace copper
