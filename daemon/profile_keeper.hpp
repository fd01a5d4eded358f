// The profile of a job: rank 0 fetches ahead what an earlier job used, and records what this one uses.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.hpp"
#include "base/trees.hpp"
#include "cache/cache.hpp"
#include "daemon/progress_loop.hpp"
#include "profile/profile.hpp"
#include "profile/replay.hpp"
#include "profile/use_log.hpp"

namespace copper {

// Of a job of many nodes, so many tell what they used: enough to know what most of them use.
inline constexpr std::uint32_t nodes_asked_max = 16;
bool is_asked_for_uses(Rank rank, std::uint32_t nodes);

inline constexpr const char* uses_verb = "uses";
// The answer of a node to `uses_verb`. Takes some milliseconds.
std::string answer_uses(const UseLog& log, Rank self, const std::string& argument);

// All functions belong to the loop's thread, which only asks the nodes and hands their answers over. A thread
// of the keeper's own does the rest: a home directory may be slow, and large profiles take long to decode, to
// join and to write. It does one thing after the other.
class ProfileKeeper {
  public:
    struct Options {
        std::string file;
        std::vector<std::string> substitutes;  // to read, in this order, if there is no such file
        Replay::Options replay;
        // Nodes are not asked for more while answers of this size wait to be joined: a profile holds no more.
        std::size_t waiting_bytes_max = profile_bytes_max;
        std::chrono::milliseconds patience{2000};  // with nodes that are asked
    };

    // All must outlive it.
    ProfileKeeper(Options options, const Trees& trees, ProgressLoop& loop, Cache& cache, const UseLog& log);
    ~ProfileKeeper();

    // The job has begun: replays, and records every minute while programs use something new.
    void begin();
    // The job ends. Records a last time, and asks other nodes for that if they are still there.
    enum class Others { are_there, are_gone };
    void finish(Others others);
    // Waits for the last record, but not for ever.
    void wait_until_written();
    // Its thread is still at work: it may wait for the filesystem for ever.
    bool is_stuck() const { return to_do_ != 0; }

    Replay::Progress progress() const {
        return replay_ != nullptr ? replay_->progress() : Replay::Progress();
    }

  private:
    void in_thread(std::function<void()> work);
    void record_now_and_then();
    void collect();
    bool take(ProgressLoop::Parts parts);
    void record();
    // These run in thread_.
    void read();
    void join(const ProgressLoop::Parts& news);
    void write(std::uint32_t nodes_asked);

    const Options options_;
    const Trees& trees_;
    ProgressLoop& loop_;
    Cache& cache_;
    const UseLog& log_;

    // For the loop's thread only.
    std::shared_ptr<Replay> replay_;
    std::map<Rank, std::size_t> told_;  // how many uses of this run, by the nodes that were asked
    bool is_collecting_ = false;
    std::size_t uses_recorded_ = 0;  // of this node

    // For thread_ only.
    std::optional<Profile> earlier_;
    JoinedUses used_;  // in this run

    std::atomic<std::size_t> waiting_bytes_ = 0;  // of answers, for thread_ to join
    std::atomic<int> to_do_ = 0;                  // of thread_
    ThreadPool thread_{{.threads_max = 1}};       // last: it uses the other members
};

}  // namespace copper
