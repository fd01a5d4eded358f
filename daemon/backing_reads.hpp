// The reads of the backing filesystem that the protocol has begun, each in a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>

#include "base/clock.hpp"
#include "base/rate.hpp"
#include "base/thread_pool.hpp"
#include "base/trees.hpp"
#include "cache/backing_store.hpp"
#include "cache/compressor.hpp"

namespace copper {

// One thread makes all calls. The destructor waits for the reads.
class BackingReads {
  public:
    // Called in the thread of the read, or by begin() if no thread can start.
    using Done = std::function<void(const ObjectKey&, ObjectPtr)>;

    // Extents of `trees` are perhaps compressed, others are never sent. The references must outlive this.
    BackingReads(ThreadPool::Options pool, Compression compression, const Trees& trees, BackingStore& backing,
                 Done done)
        : trees_(trees), backing_(backing), done_(std::move(done)), compressor_(compression), pool_(pool) {}

    // REQUIRES: no read of this key has begun and not ended. `link`: on which the object will be sent
    void begin(const ObjectKey& key, const Link& link);
    void end(const ObjectKey& key) { progress_.erase(key); }
    // REQUIRES: begun, and not ended
    TimePoint latest_call(const ObjectKey& key) const { return progress_.at(key)->latest_call(); }

  private:
    ObjectPtr read(const ObjectKey& key, const Link& link, ReadProgress& progress);

    const Trees& trees_;
    BackingStore& backing_;
    const Done done_;
    std::map<ObjectKey, std::shared_ptr<ReadProgress>> progress_;
    std::atomic<bool> warned_of_large_object_ = false;
    Compressor compressor_;
    ThreadPool pool_;  // last: its jobs end before the members they use
};

}  // namespace copper
