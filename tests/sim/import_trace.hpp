// A recorded import (bench/storm --record, whose module bench/import_trace.py describes the file), and the
// filesystem that it was recorded on.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "bench/slow_filesystem/shared_state.hpp"
#include "cache/object.hpp"

namespace copper::sim {

using bench::Operation;
using std::chrono::microseconds;

struct ImportTrace {
    static constexpr std::string_view root = "/pfs";

    struct Request {
        microseconds at;    // since the start
        microseconds took;  // until the answer
        Operation operation;
        std::string path;  // below the root
        bool is_found = true;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };

    std::string package;
    microseconds duration{0};
    microseconds duration_local{0};  // without the filesystem in between
    std::vector<Request> requests;   // by `at`
    // All names of the directories that the import asked about.
    std::map<std::string, std::vector<Listing::NewEntry>> directories;
};

// `path`: JSON, compressed by gzip.
tl::expected<ImportTrace, std::string> read_trace(const std::string& path);

// A program that reads a file of so many extents, one after the other, as fast as it gets them.
ImportTrace trace_of_a_large_file(std::uint32_t extents);

// Answers as PosixBacking does that reads the recorded directories. Immutable.
class TraceStore {
  public:
    // `operation_time`: Directory::operation_time. `contents`: where the recorded files lie on this machine;
    // without it, and of files that have another size there, all bytes are zeros. `trace` must outlive this.
    TraceStore(const ImportTrace& trace, microseconds operation_time, std::string contents);

    ObjectPtr read(const ObjectKey& key) const;
    // Nothing if the path is absent.
    const Listing::NewEntry* find(const std::string& path) const;

    // What a client asks the servers for, one step after the other. A step can be several operations at once.
    struct Step {
        Operation operation;
        std::uint64_t bytes = 0;  // of a read
        std::uint32_t count = 1;
    };
    // What one client of the filesystem knows already.
    struct Client {
        std::set<std::string> names;
        std::set<std::string> open_files;
    };
    // What read(key) asks for.
    std::vector<Step> steps_of(const ObjectKey& key, Client& client) const;

  private:
    Directory directory_of(const std::string& path) const;
    std::shared_ptr<const std::byte[]> bytes_of(const std::string& path, std::uint64_t offset,
                                                std::size_t size) const;
    ObjectPtr read_extent(const ObjectKey& key) const;
    void add_lookups(const std::string& path, Client& client, std::vector<Step>& steps) const;

    const ImportTrace& trace_;
    const microseconds operation_time_;
    const std::string contents_;
    std::map<std::string, Listing::NewEntry> entries_;  // by path
    const std::shared_ptr<const std::byte[]> zeros_;
};

}  // namespace copper::sim
