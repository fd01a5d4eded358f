// What a person asked to fetch ahead (`copper prefetch`): path after path, everything below it, to all nodes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>
#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "cache/cache.hpp"
#include "daemon/progress_loop.hpp"
#include "profile/replay.hpp"

namespace copper {

// All functions belong to the loop's thread.
class Prefetch {
  public:
    static constexpr std::size_t paths_waiting_max = 1024;

    // All must outlive it.
    Prefetch(Replay::Options options, const Trees& trees, ProgressLoop& loop, Cache& cache)
        : options_(options), trees_(trees), loop_(loop), cache_(cache) {}

    // An error says why the path cannot be fetched.
    tl::expected<void, std::string> add(const std::string& path);

    // {done, paths: [{path, state, fetched, bytes, failed, left, error, budget_bytes, seconds}, ...]} of all
    // paths so far.
    nlohmann::json progress();

  private:
    struct One {
        std::string path;
        std::uint64_t budget_bytes = 0;
        std::unique_ptr<Replay> replay;  // null: not begun
        std::chrono::steady_clock::time_point begun;
        std::optional<std::chrono::steady_clock::time_point> ended;
    };
    void begin_next();

    const Replay::Options options_;  // but for bytes_max, which depends on what the cache holds
    const Trees& trees_;
    ProgressLoop& loop_;
    Cache& cache_;
    std::deque<One> paths_;
};

}  // namespace copper
