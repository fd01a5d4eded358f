// The reads that the Mover has asked for, and which of them begin now: those for this node alone first (files
// outside the trees, unshared files, direct reads), then those that the job waits for, then those that it
// will use.
//
// Sans-I/O: the progress loop and the simulator run it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>

#include "collectives/mover.hpp"

namespace copper {

class ReadQueue {
  public:
    using ReadFor = Mover::Effects::ReadFor;

    struct Options {
        std::uint64_t ahead_max = 24;  // at a time: programs that wait have the rest of the reader threads
        std::uint64_t bytes_for_others_max = Mover::Options().bytes_for_others_max;
    };
    explicit ReadQueue(Options options) : options_(options) {}

    // At most one for each object that the Mover is reading.
    void add(const ObjectKey& key, ReadFor whom) { of(whom).waiting.push_back(key); }

    // Begins reads until `begin` is false or no more may begin. The others wait until a read has ended, or
    // until the backlog is smaller: call it again then. `backlog_bytes`: on their way to other nodes.
    using Begin = std::function<bool(const ObjectKey& key, ReadFor whom)>;
    void begin_reads(std::uint64_t backlog_bytes, const Begin& begin);
    void ended(ReadFor whom) { --of(whom).in_flight; }

    bool is_empty() const;  // nothing waits
    std::uint64_t in_flight() const;

  private:
    struct Reads {
        std::deque<ObjectKey> waiting;
        std::uint64_t in_flight = 0;
    };
    Reads& of(ReadFor whom) { return reads_[static_cast<std::size_t>(whom)]; }
    bool may_begin(ReadFor whom, std::uint64_t backlog_bytes);

    const Options options_;
    std::array<Reads, 3> reads_;
};

}  // namespace copper
