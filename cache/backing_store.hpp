// The interface of everything that reads the backing filesystem into objects.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.hpp"
#include "cache/object.hpp"

namespace copper {

// How far a read has come. Thread-safe.
class ReadProgress {
  public:
    // A call to the filesystem begins, so the one before has ended.
    void note() { latest_call_ = std::chrono::steady_clock::now(); }
    // When the latest call began; before the first one: when the read began.
    TimePoint latest_call() const { return latest_call_; }

  private:
    std::atomic<TimePoint> latest_call_ = std::chrono::steady_clock::now();
};

// Thread-safe. Blocks as long as the filesystem does.
class BackingStore {
  public:
    virtual ~BackingStore() = default;

    // Never fails: an error is an Object.
    //
    // An error may be this node's trouble, and so may an empty directory, or an entry that is absent: where a
    // filesystem was not mounted when the daemon started, its mount point is there and empty, and no store
    // can tell. A second node must find the same before it becomes what all nodes see.
    virtual ObjectPtr read(const ObjectKey& key, ReadProgress& progress) = 0;
    ObjectPtr read(const ObjectKey& key) {
        ReadProgress unseen;
        return read(key, unseen);
    }

    // Names the filesystem that `path` is on: by the directory where it begins. Never blocks.
    virtual std::string filesystem_of(const std::string& path) = 0;

    // Whether that filesystem looks up one name at a time in a directory, as far as is known. Never blocks.
    virtual bool is_serial(const std::string& /*filesystem*/) { return false; }
};

}  // namespace copper
