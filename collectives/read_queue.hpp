// The reads of one filesystem that a node has queued, and which of them begin now. Those for this node alone
// (files outside the trees, unshared files, direct reads) and those that the job waits for take turns; those
// that the job will use come after them. In each of these, metadata and data (extents) take turns, so
// nobody's `stat` waits behind the data that others read.
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
        // Of metadata ahead, where the filesystem looks up one name at a time in a directory: what a program
        // waits for comes after what is under way there.
        std::uint64_t serial_ahead_max = 4;
        // A read of data for others waits while this many bytes are being read for them or are on the way to
        // them. Metadata, which takes few, waits only behind four times as many.
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
    // The filesystem looks up one name at a time in a directory, or does not.
    void set_serial(bool is_serial) { is_serial_ = is_serial; }

    // Begins all reads that may begin. The others wait until a read has ended, or until the backlog is
    // smaller: call it again then. `backlog_bytes`: on their way to other nodes. At most `reads_max` begin.
    using Begin = std::function<void(const ObjectKey& key, ReadFor whom)>;
    void begin_reads(std::uint64_t backlog_bytes, std::uint64_t reads_max, const Begin& begin);
    void ended(const ObjectKey& key, ReadFor whom) { --of(whom, line_of(key)).in_flight; }
    std::uint64_t in_flight() const;
    bool empty() const { return size() == 0 && in_flight() == 0; }

  private:
    enum class Line : std::uint8_t { metadata, data };
    struct Reads {
        std::map<std::uint64_t, ObjectKey> waiting;  // by number, the first one first
        std::uint64_t in_flight = 0;
    };
    struct Next {
        ReadFor whom;
        Line line;
    };
    struct Place {
        ReadFor whom;
        std::uint64_t number;
    };
    static Line line_of(const ObjectKey& key);
    static Line other(Line line) { return line == Line::data ? Line::metadata : Line::data; }
    Reads& of(ReadFor whom, Line line) { return reads_[2 * index(whom) + static_cast<std::size_t>(line)]; }
    const Reads& of(ReadFor whom, Line line) const {
        return reads_[2 * index(whom) + static_cast<std::size_t>(line)];
    }
    static std::size_t index(ReadFor whom) { return static_cast<std::size_t>(whom); }
    std::uint64_t waiting(ReadFor whom) const {
        return of(whom, Line::metadata).waiting.size() + of(whom, Line::data).waiting.size();
    }
    bool may_begin(Next read, std::uint64_t backlog_bytes) const;
    std::optional<Next> next(std::uint64_t backlog_bytes) const;

    const Options options_;
    std::array<Reads, 6> reads_;
    std::array<Line, 3> last_line_{Line::data, Line::data, Line::data};  // that began, by ReadFor
    std::map<ObjectKey, Place> places_;                                  // of those that wait
    std::uint64_t next_number_ = 0;
    ReadFor last_begun_ = ReadFor::the_job;
    bool is_serial_ = false;
};

}  // namespace copper
