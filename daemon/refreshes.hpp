// What this node does when somebody refreshes a part of what the job sees (`copper refresh`).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "cache/cache.hpp"
#include "cache/generations.hpp"
#include "daemon/progress_loop.hpp"
#include "fuse/session.hpp"

namespace copper {

// A refresh is one roll call. Each node first gives all that its programs ask for below the path another key
// (Generations), then has its kernel drop what it knows there, and answers when that is done. So when all
// have answered, no program sees anything there that was read before the refresh, but for the files that it
// has open. Nodes need not do it at the same time, and two refreshes need no order.
//
// A kernel drops nothing in a directory in which a program waits for the filesystem. Where that does not
// answer, a node tells so, and does the rest when it answers again.
//
// All functions belong to the loop's thread.
class Refreshes {
  public:
    // The last ones must outlive it. There is no session before the mount, and none if it fails.
    Refreshes(std::string mount, Trees trees, Cache& cache, const std::unique_ptr<Session>& session)
        : mount_(std::move(mount)), trees_(std::move(trees)), cache_(cache), session_(session) {}

    // The argument of the roll call, with an id for each. The paths must be UTF-8.
    static std::string with_ids(std::vector<Refreshed> refreshed);
    // The same, from the argument of a request.
    static tl::expected<std::string, std::string> with_ids(const std::string& paths);

    // Nothing: `later` gets it once, in any thread. If the same call comes twice, each gets an answer.
    std::optional<std::string> answer(const std::string& argument, ProgressLoop& loop,
                                      const ProgressLoop::Later& later);

    // Nobody needs to ask this node again.
    static bool is_done_in_the_end(const Answer::Part& answer);

  private:
    const std::string mount_;
    const Trees trees_;
    Cache& cache_;
    const std::unique_ptr<Session>& session_;
};

}  // namespace copper
