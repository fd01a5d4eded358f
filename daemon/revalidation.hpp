// Looks regularly whether what this node has read has changed, and refreshes it (--revalidate SECONDS).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <set>
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
// All functions belong to the loop's thread, but for the look at the filesystems. One of them may hang: each
// has a thread of its own, and the next rounds do without it.
class Revalidation {
  public:
    // All must outlive it.
    Revalidation(std::chrono::milliseconds between_rounds, PosixBacking& backing, ProgressLoop& loop);

    // `of_others`: the kernel knows what another process has read, and which is lost.
    enum class Mount { is_new, of_others };
    void begin(Mount mount);
    // A thread is still at work: it may wait for its filesystem for ever. Also when the loop has ended.
    bool is_stuck() const { return threads_at_work_ != 0; }

  private:
    void begin_round();
    void ask_next_node(std::function<void()> then);
    bool has_lost_nodes();
    void refresh_or_look();
    void look_at(const std::string& filesystem, const ReadVersions::Paths& paths);
    void refresh_changed(const std::string& filesystem, const ReadVersions::Paths& changed);
    enum class Outcome { on_all_nodes, not_on_all };
    void refresh(std::vector<Refreshed> refreshed, std::function<void(Outcome)> then);
    void end_round();

    const std::chrono::milliseconds between_rounds_;
    PosixBacking& backing_;
    ProgressLoop& loop_;
    ReadVersions versions_;

    // For the loop's thread only.
    bool everything_ = false;  // is to be refreshed
    std::vector<Rank> alive_;  // nodes, at the last round
    bool has_warned_ = false;
    std::set<std::string> under_way_;  // filesystems whose look, or refresh, has not ended

    std::atomic<std::size_t> threads_at_work_ = 0;
    static constexpr std::size_t filesystems_max = 64;      // that are looked at at once
    ThreadPool threads_{{.threads_max = filesystems_max}};  // last: they use the other members
};

}  // namespace copper
