// Rank 0 checks whether every node serves its mirror, or all but as many as may lack one. It prints a line of
// JSON for each check on standard output, where `copper launch` waits for it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/clock.hpp"
#include "daemon/progress_loop.hpp"

namespace copper {

inline constexpr const char* ready_verb = "ready";
// To all nodes once enough are ready: the job begins. A node that cannot serve leaves it.
inline constexpr const char* begin_verb = "begin";

// A place that another user has on a node. `copper launch` may choose another one for all nodes.
enum class Taken { nothing, mount, private_directory };

// A node's answer to the verb "ready".
struct ReadyAnswer {
    std::string error;  // empty: the node serves
    Taken taken = Taken::nothing;
    // If there is an error: the batch job and the launch whose mirror has the mount, alive or dead.
    std::string batch_job = {};
    std::string batch_run = {};
    std::string launch = {};
    bool is_served = false;  // by a live daemon of that launch
};
std::string to_text(const ReadyAnswer& answer);

// The line that `copper launch` reads:
// {"copper":"ready","ready":3,"nodes":4,"failed":[{"host":"cn2","reason":".."}],"missing":["cn1"],"done":false,
// "serves":false}
// A failed node has "taken":"mount" or "taken":"private_directory" if that is why. "serves": the job begins.
struct ReadyState {
    std::string line;
    enum class Outcome { undecided, ready, failed } outcome = Outcome::undecided;
};
// The nodes of a job, and how many of them may lack a mirror.
struct Wanted {
    std::uint32_t nodes = 1;
    std::uint32_t missing_max = 0;
};
// `last`: nodes that are missing now have failed.
enum class Look { again, last };
using NameOf = std::function<std::string(Rank)>;  // as Fabric::name_of
ReadyState ready_state(const ProgressLoop::Parts& parts, Wanted wanted, Look look, const NameOf& name_of);

// For the loop's thread only.
class Readiness {
  public:
    using Done = std::function<void(ReadyState::Outcome)>;
    Readiness(ProgressLoop& loop, Wanted wanted, Done done)
        : loop_(loop), wanted_(wanted), done_(std::move(done)) {}

    // Asks until every node has answered that it serves, or why it cannot, or until `timeout` has passed.
    void begin(std::chrono::milliseconds timeout);

  private:
    void ask();
    void judge(const ProgressLoop::Parts& parts);

    ProgressLoop& loop_;
    const Wanted wanted_;
    const Done done_;
    TimePoint deadline_;
};

}  // namespace copper
