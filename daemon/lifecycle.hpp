// Where a node is between its start and its end. Without I/O and clock.
#pragma once

#include <cstdint>
#include <string>

namespace copper {

enum class StopReason : std::uint8_t {  // to_string() has their texts
    none,                               // the node runs
    asked,                              // by the control verb "stop", on this node or another one
    signal,
    launcher_ended,  // and will end this process; another process goes on with the mount
    unmounted,       // somebody else unmounted the mirror
    start_failed,    // of this node; the others go on without it (--allow-missing)
    job_not_ready,   // rank 0: another node did not start
    forgotten,       // the node could not start, and nobody told it to end
};
const char* to_string(StopReason reason);

// How nodes part. The fabric must know (MpiFabric::Ending).
enum class Parting : std::uint8_t { together, alone };

//   starting ──► mounted ──► serving ──┐
//       │           └──────────────────┼──► stopping ──► leaving
//       └──────► failed ───────────────┘
//
// Each event returns whether the node takes this step now. If not, nothing changes: so the first reason to
// stop counts. Not thread-safe.
class Lifecycle {
  public:
    enum class Stage : std::uint8_t {
        starting,
        mounted,  // the job has not begun: not all nodes serve yet. A successor stays here
        serving,
        failed,    // could not start; the job is told so
        stopping,  // unmounts, and waits for the others
        leaving,   // sends what others still need, and ends
    };

    bool mount() { return step(Stage::starting, Stage::mounted); }
    bool fail(std::string why);
    bool begin() { return step(Stage::mounted, Stage::serving); }  // the job
    bool stop(StopReason reason);
    bool leave(Parting parting);

    Stage stage() const { return stage_; }
    bool is_stopping() const { return stage_ >= Stage::stopping; }
    // Why the node could not start, until its end; empty: it could.
    const std::string& error() const { return error_; }
    StopReason reason() const { return reason_; }
    Parting parting() const { return parting_; }
    // Of the process, when it ends now.
    int exit_code() const;

  private:
    bool step(Stage from, Stage to);

    Stage stage_ = Stage::starting;
    std::string error_;
    StopReason reason_ = StopReason::none;
    Parting parting_ = Parting::together;
};

}  // namespace copper
