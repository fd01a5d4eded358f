// The interface of everything that reads the backing filesystem into objects.
#pragma once

#include "cache/object.hpp"

namespace copper {

// Thread-safe. Blocks as long as the filesystem does.
class BackingStore {
  public:
    virtual ~BackingStore() = default;

    // Never fails: an error is an Object.
    //
    // An error may be this node's trouble, and so may an empty directory, or an entry that is absent: where a
    // filesystem was not mounted when the daemon started, its mount point is there and empty, and no store
    // can tell. A second node must find the same before it becomes what all nodes see.
    virtual ObjectPtr read(const ObjectKey& key) = 0;
};

}  // namespace copper
