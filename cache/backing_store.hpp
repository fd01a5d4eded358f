// The interface of everything that reads the backing filesystem into objects.
#pragma once

#include <string_view>

#include "cache/object.hpp"

namespace copper {

// Thread-safe. Blocks as long as the filesystem does.
class BackingStore {
  public:
    virtual ~BackingStore() = default;

    // Never fails: an error is an Object.
    //
    // An error may be this node's own trouble. So may an empty Listing: if a filesystem was not mounted when
    // the daemon started, its mount point is an empty directory, and no store can tell. So all nodes believe
    // such a result only after a second node has found the same.
    virtual ObjectPtr read(const ObjectKey& key) = 0;

    // Closes what is open of `path` and below, so that later reads see the present state of the filesystem.
    // REQUIRED when a refresh drops a path from the caches.
    virtual void forget(std::string_view path) { static_cast<void>(path); }
};

}  // namespace copper
