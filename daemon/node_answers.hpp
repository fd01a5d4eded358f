// What a node tells about itself: its answers to roll calls that only ask.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "daemon/control/timeline.hpp"
#include "daemon/lifecycle.hpp"
#include "daemon/mirror.hpp"
#include "daemon/profile_keeper.hpp"
#include "daemon/progress_loop.hpp"

namespace copper {

// For the loop's thread only.
class NodeAnswers {
  public:
    // All outlive it. It reads them, and changes nothing.
    struct Sources {
        const Lifecycle& lifecycle;
        const Mirror& mirror;
        const Supervised& supervised;
        Store& store;
        const ProgressLoop& loop;
        const Fabric& fabric;
        const ProfileKeeper* profile = nullptr;  // of rank 0, if there is a profile
    };
    explicit NodeAnswers(const Sources& sources) : from_(sources) {}

    // {host}, and what `more` has.
    static std::string with_host(nlohmann::json more = nlohmann::json::object());
    std::string status() const;
    std::string stats(const std::string& paths_max) const;
    std::string sum(const std::string& paths_max);

    // The node serves from now on.
    void note_ready();
    // Adds to the time line what has been counted since the last time. Call it once a step().
    void note_progress();
    std::chrono::milliseconds step() const { return timeline_.step(); }
    // Another node has left alone. `rank_and_why`: see departed_verb.
    void note_departed(const std::string& rank_and_why);

  private:
    const char* state() const;
    std::string why() const;  // the node does not serve as it should; empty: it does
    // What status and sum both tell.
    nlohmann::json common() const;
    nlohmann::json counts(const std::string& paths_max) const;

    const Sources from_;
    const TimePoint started_ = std::chrono::steady_clock::now();
    Timeline timeline_;
    Timeline::Counts noted_ = {};           // all that is in timeline_
    Timeline::Time ready_;                  // the epoch: not yet
    std::map<Rank, std::string> departed_;  // nodes that left alone, and why
};

}  // namespace copper
