// The reads of one filesystem that a node has queued, and which of them begin now. Those for this node alone
// (files outside the trees, unshared files, direct reads) and those that the job waits for take turns; those
// that the job will use come after them.
//
// Sans-I/O, part of Reading.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "cache/object.hpp"

namespace copper {

class ReadQueue {
  public:
    enum class ReadFor : std::uint8_t { this_node, the_job, the_job_ahead };

    struct Options {
        std::uint64_t reads_max = 32;  // at a time
        // Of these, for this node, and ahead: programs that wait have the rest. So if the filesystem hangs,
        // one of those that the job waits for finds out.
        std::uint64_t this_node_max = 24;
        std::uint64_t ahead_max = 24;
        // A read for others waits while this many bytes are being read for them or are on the way to them.
        std::uint64_t bytes_for_others_max = 32U << 20;
    };
    explicit ReadQueue(Options options) : options_(options) {}

    // REQUIRES: !has(key)
    void add(const ObjectKey& key, ReadFor whom);
    bool has(const ObjectKey& key) const { return places_.contains(key); }
    // Nobody waits for it any more. REQUIRES: has(key)
    void drop(const ObjectKey& key);
    // The job now waits for what it was only going to use. REQUIRES: has(key)
    void promote(const ObjectKey& key);
    // So many reads, at most, begin before it. REQUIRES: has(key)
    std::uint64_t before(const ObjectKey& key) const;
    std::uint64_t size() const { return places_.size(); }

    // Begins all reads that may begin. The others wait until a read has ended, or until the backlog is
    // smaller: call it again then. `backlog_bytes`: on their way to other nodes. At most `reads_max` begin.
    using Begin = std::function<void(const ObjectKey& key, ReadFor whom)>;
    void begin_reads(std::uint64_t backlog_bytes, std::uint64_t reads_max, const Begin& begin);
    void ended(ReadFor whom) { --of(whom).in_flight; }
    std::uint64_t in_flight() const;
    bool empty() const { return size() == 0 && in_flight() == 0; }

  private:
    struct Reads {
        std::map<std::uint64_t, ObjectKey> waiting;  // by number, the first one first
        std::uint64_t in_flight = 0;
    };
    struct Place {
        ReadFor whom;
        std::uint64_t number;
    };
    Reads& of(ReadFor whom) { return reads_[static_cast<std::size_t>(whom)]; }
    const Reads& of(ReadFor whom) const { return reads_[static_cast<std::size_t>(whom)]; }
    bool may_begin(ReadFor whom, std::uint64_t backlog_bytes) const;
    std::optional<ReadFor> next(std::uint64_t backlog_bytes) const;

    const Options options_;
    std::array<Reads, 3> reads_;
    std::map<ObjectKey, Place> places_;  // of those that wait
    std::uint64_t next_number_ = 0;
    ReadFor last_begun_ = ReadFor::the_job;
};

}  // namespace copper
