// Looks regularly whether what this node has read has changed, and refreshes it (--revalidate SECONDS).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/backing/read_versions.hpp"
#include "cache/generations.hpp"
#include "daemon/progress_loop.hpp"

namespace copper {

// What to refresh when these paths have changed: each of them alone, or, where they are many, everything
// below the directory that has all. Without ids.
std::vector<Refreshed> refreshed_by_change(const std::vector<std::string>& paths);

// Each node looks after what it has read itself. In each round, it compares the versions of all directories,
// and of some files, with those it has read, and refreshes on all nodes what has another one by now. What a
// lost node has read, nobody looks after any more: then all is refreshed. Where every program's kernel knows
// all it wants, nobody would notice a loss (FailureDetector). So each node first asks the next one for a
// sign.
//
// All functions belong to the loop's thread, but for the look at the filesystem, which may hang: that has a
// thread of its own.
class Revalidation {
  public:
    // All must outlive it.
    Revalidation(std::chrono::milliseconds between_rounds, PosixBacking& backing, ProgressLoop& loop);

    // `of_others`: the kernel knows what another process has read, and which is lost.
    enum class Mount { is_new, of_others };
    void begin(Mount mount);
    // Its thread is still at work: it may wait for the filesystem for ever.
    bool is_stuck() const { return is_looking_; }

  private:
    void begin_round();
    void ask_next_node(std::function<void()> then);
    bool has_lost_nodes();
    void refresh_or_look();
    void look();  // in thread_
    void refresh(std::vector<Refreshed> refreshed, std::function<void()> then);
    void end_round();

    const std::chrono::milliseconds between_rounds_;
    PosixBacking& backing_;
    ProgressLoop& loop_;
    ReadVersions versions_;

    // For the loop's thread only.
    bool everything_ = false;  // is to be refreshed
    std::vector<Rank> alive_;  // nodes, at the last round
    bool has_warned_ = false;

    std::atomic<bool> is_looking_ = false;
    ThreadPool thread_{{.threads_max = 1}};  // last: it uses the other members
};

}  // namespace copper
