// Fetching ahead of a program that goes through a tree of directories.
#pragma once

#include <string>

#include "cache/cache.hpp"

namespace copper {

// Gets the Listings of the directories below `directory`, two levels deep, into the cache: the program will
// be in the first level next, and finds the second one there when it comes to it, so that it waits for the
// network once and not in each directory. `listing` is the directory's own. `cache` must outlive what this
// asks of it.
void fetch_below(Cache& cache, const std::string& directory, const Listing& listing);

}  // namespace copper
