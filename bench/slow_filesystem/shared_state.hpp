// What all mounts of one slow filesystem share, in a mapped file: its servers' queues, and counters for each
// client.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <tl/expected.hpp>

#include "bench/slow_filesystem/model.hpp"

namespace copper::bench {

enum class Operation { lookup, getattr, readlink, opendir, readdir, open, read, getxattr, listxattr, statfs };
inline constexpr std::array operation_names = {"lookup", "getattr", "readlink", "opendir",   "readdir",
                                               "open",   "read",    "getxattr", "listxattr", "statfs"};

struct ClientCounters {
    std::array<std::atomic<std::uint64_t>, operation_names.size()> operations;
    std::atomic<std::uint64_t> bytes_read;
};

inline constexpr std::size_t clients_max = 256;

struct SharedState {
    SharedQueues queues;
    std::atomic<std::uint32_t> clients;  // that there have been
    std::array<ClientCounters, clients_max> counters;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

using SharedStatePtr = std::shared_ptr<SharedState>;

// Maps the file, which is made if it is missing. The first client makes it; all later ones find its queues.
tl::expected<SharedStatePtr, std::string> open_shared_state(const std::string& path);
// Maps what is there.
tl::expected<SharedStatePtr, std::string> find_shared_state(const std::string& path);

// The counters of a new client; an error if there have been too many.
tl::expected<ClientCounters*, std::string> add_client(SharedState& state);

// {"clients": [{"lookup": 1, ..., "bytes_read": 1}, ...]}
std::string counters_json(const SharedState& state);

}  // namespace copper::bench
