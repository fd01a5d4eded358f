// What happened when: counts in steps of the wall clock. Those of many nodes add up.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>

#include <nlohmann/json.hpp>

namespace copper {

// Bounded: beyond steps_max steps in which something happened, steps become twice as long. Steps begin at
// multiples of their length, so that the steps of one node fit into the longer ones of another.
class Timeline {
  public:
    using Time = std::chrono::system_clock::time_point;
    static constexpr std::array columns = {"nodes_ready", "requests",   "operations",
                                           "bytes",       "bytes_read", "direct_reads"};
    using Counts = std::array<std::uint64_t, columns.size()>;
    static constexpr std::chrono::milliseconds shortest_step{250};
    static constexpr std::size_t steps_max = 120;

    explicit Timeline(std::chrono::milliseconds step = shortest_step) : step_(step) {}

    void add(Time at, const Counts& counts);
    void add(const Timeline& other);

    std::chrono::milliseconds step() const { return step_; }
    // By number since the clock's epoch; steps in which nothing happened are missing.
    const std::map<std::int64_t, Counts>& steps() const { return steps_; }

  private:
    void lengthen_to(std::chrono::milliseconds step);
    void shorten_list();

    std::chrono::milliseconds step_;
    std::map<std::int64_t, Counts> steps_;
};

// {"begin_ms": since the epoch, "step_ms":, "columns": [...], "steps": [[number after begin, counts...],
// ...]}
nlohmann::json to_json(const Timeline& timeline);
// Throws a std::exception if this is no time line.
Timeline timeline_from(const nlohmann::json& json);

}  // namespace copper
