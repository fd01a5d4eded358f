// Counts the kernel's requests to this node's mirror.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/latency_histogram.hpp"
#include "cache/guesses/guesses.hpp"
#include "fuse/hot_paths.hpp"

namespace copper {

struct FuseCounters {
    std::atomic<std::uint64_t> requests = 0;  // all requests, of any kind
    std::atomic<std::uint64_t> lookup = 0;
    std::atomic<std::uint64_t> getattr = 0;
    std::atomic<std::uint64_t> readdir = 0;
    std::atomic<std::uint64_t> readlink = 0;
    std::atomic<std::uint64_t> open = 0;
    std::atomic<std::uint64_t> read = 0;
    // Reads from the start of a file. The kernel does not tell when programs open a file, and answers later
    // reads itself.
    std::atomic<std::uint64_t> files_read = 0;
    std::atomic<std::uint64_t> ioctl = 0;
    // Directories without a __pycache__, and files that one lacks.
    std::atomic<std::uint64_t> bytecode_absent = 0;
    std::atomic<std::uint64_t> bytes_read = 0;
    std::atomic<std::uint64_t> bytes_filled = 0;  // for the page filler
    Guesses::Counters guesses;
    LatencyHistogram lookup_latency;
    LatencyHistogram read_latency;
    HotPaths hot_paths;
};

}  // namespace copper
