// What a person asked to fetch ahead (`copper prefetch`), everything below each path, to all nodes: of each
// filesystem, path after path.
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
#include "cache/backing_store.hpp"
#include "cache/cache.hpp"
#include "daemon/progress_loop.hpp"
#include "profile/replay.hpp"

namespace copper {

// All functions belong to the loop's thread.
class Prefetch {
  public:
    static constexpr std::size_t paths_waiting_max = 1024;

    // All must outlive it.
    Prefetch(Replay::Options options, const Trees& trees, BackingStore& backing, ProgressLoop& loop,
             Cache& cache);

    // An error says why the path cannot be fetched.
    tl::expected<void, std::string> add(const std::string& path);

    // {paths: [{path, state, done, silent_seconds, fetched, bytes, failed, left, error, seconds}, ...]} of
    // all paths so far. `silent_seconds`: its filesystem has not answered this node for so long; 0: it
    // answers.
    nlohmann::json progress();

  private:
    struct One {
        std::string path;
        std::string filesystem;
        std::unique_ptr<Replay> replay;  // null: not begun
        std::chrono::steady_clock::time_point begun;
        std::optional<std::chrono::steady_clock::time_point> ended;
    };
    void begin_next();

    const Replay::Options options_;
    const Trees& trees_;
    BackingStore& backing_;
    ProgressLoop& loop_;
    Cache& cache_;
    std::deque<One> paths_;
};

}  // namespace copper
