// One node of a job: wires the parts of a daemon together and leads them from start to end.
//
// Threads: the caller of run() drives the fabric and the progress loop. The Session's threads serve FUSE. The
// reader pool's threads wait for the filesystem. The control socket and the signals have one thread each.
// Other threads post events of the node's life to the loop, so all its state changes in one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>
#include <tl/expected.hpp>

#include "base/clock.hpp"
#include "base/trees.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/cache.hpp"
#include "daemon/control/instance.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control/timeline.hpp"
#include "daemon/control_server.hpp"
#include "daemon/mount_point.hpp"
#include "daemon/prefetch.hpp"
#include "daemon/profile_keeper.hpp"
#include "daemon/progress_loop.hpp"
#include "daemon/readiness.hpp"
#include "daemon/refreshes.hpp"
#include "daemon/replies.hpp"
#include "daemon/revalidation.hpp"
#include "daemon/supervisor.hpp"
#include "fabric/fabric.hpp"
#include "fuse/counters.hpp"
#include "fuse/session.hpp"
#include "profile/use_log.hpp"

namespace copper {

enum class StopReason {
    none,   // the node runs
    asked,  // by the control verb "stop", on this node or another one
    signal,
    launcher_ended,  // and will end this process; another process goes on with the mount
    unmounted,       // somebody else unmounted the mirror
    start_failed,    // of this node; the others go on without it (--allow-missing)
    job_not_ready,   // rank 0: another node did not start
    forgotten,       // the node could not start, and nobody told it to end
};
const char* to_string(StopReason reason);

// How nodes part. The fabric must know (MpiFabric::Ending).
enum class Parting { together, alone };

class Node {
  public:
    // `start_error`: why this node cannot serve, if that is known already (its options do not fit this
    // machine). The node joins the job all the same, to report it. Objects that the node reads lie in
    // `memory`; what its fabric receives should, too.
    Node(DaemonOptions options, std::unique_ptr<Fabric> fabric, std::shared_ptr<ExtentMemory> memory,
         std::string start_error, Cores cores, Supervised supervised);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Runs the node from start to end and returns the exit code of the process.
    int run();

    // From any thread: ends the node like a signal.
    void stop_by_signal(int signal, pid_t sender);

    Fabric& fabric() { return *fabric_; }
    Parting parting() const { return parting_; }
    // A thread waits for the filesystem, perhaps for ever. Then the process must end without joining it.
    bool is_stuck() const {
        return loop_.reads_in_flight() > 0 || (profile_keeper_ != nullptr && profile_keeper_->is_stuck()) ||
               (revalidation_ != nullptr && revalidation_->is_stuck());
    }
    // Another process goes on with the mount, so this one must end as if it had been killed.
    bool leaves_mount_to_successor() const { return stop_reason_ == StopReason::launcher_ended; }

  private:
    tl::expected<void, std::string> start();
    tl::expected<void, std::string> take_over();
    SessionOptions session_options() const;
    tl::expected<void, std::string> mount();
    tl::expected<void, std::string> listen();
    InstanceRecord make_record() const;
    void begin_serving();
    void remove_own_files();
    void clean_up();

    // The node's answers to roll calls.
    std::string answer(const std::string& verb, const std::string& argument);
    nlohmann::json answer_status();
    nlohmann::json answer_stats(const std::string& paths_max);
    nlohmann::json answer_sum(const std::string& paths_max);
    nlohmann::json answer_stop(const std::string& patience_ms);
    nlohmann::json answer_departed(const std::string& rank_and_why);
    nlohmann::json answer_leave(const std::string& how);
    const char* state();
    nlohmann::json silent() const;
    nlohmann::json paces() const;
    nlohmann::json no_view() const;
    std::string why();  // the node does not serve as it should; empty: it does

    void handle_request(const ControlRequest& request, const ControlServer::Reply& reply);
    ControlReply answer_prefetch(const std::string& path);
    ControlReply answer_keep_view(const std::string& process);
    ControlReply answer_no_view(const std::string& why);
    std::unique_ptr<UseLog> make_use_log() const;
    std::unique_ptr<ProfileKeeper> make_profile_keeper();
    nlohmann::json departed() const;
    // Unmounts. The first reason counts.
    void stop(StopReason reason);
    void stop_alone(StopReason reason, const std::string& why);
    void leave_mount_to_successor(const std::string& why);
    // `why` appears in the logs of the others and in status.
    void depart(const std::string& why);
    void unmount_if_unused_later();
    bool has_launcher() const;
    void tell_supervisor_of_life();
    void note_progress();
    void note_progress_regularly();
    // Stops all nodes. `then` gets their last answers.
    void stop_job(std::chrono::milliseconds patience, std::function<void(const ProgressLoop::Parts&)> then);
    void leave(Parting parting);

    DaemonOptions options_;
    const TimePoint started_;
    const std::unique_ptr<Fabric> fabric_;
    SupervisorLink supervisor_;
    const ProcessName launcher_;
    const bool launched_by_slurm_;
    std::optional<Succession> succession_;  // its hand_over: until the node has started
    const Place place_;
    const Trees trees_;
    const Replies replies_;
    std::string start_error_;
    std::string no_view_;  // as in InstanceRecord
    Taken taken_ = Taken::nothing;
    std::optional<InstanceRecord> occupant_;  // what has the mount if this node could not start

    FuseCounters fuse_counters_;
    PosixBacking backing_;
    const std::unique_ptr<UseLog> uses_;  // null: nobody asks for it
    Cache cache_;
    ProgressLoop loop_;
    const std::unique_ptr<ProfileKeeper> profile_keeper_;  // of rank 0, if there is a profile
    Prefetch prefetch_;
    Refreshes refreshes_;
    const std::unique_ptr<Revalidation> revalidation_;  // null: never
    Readiness readiness_;

    // For the loop's thread only.
    StopReason stop_reason_ = StopReason::none;
    Parting parting_ = Parting::together;
    bool leaving_ = false;
    std::map<Rank, std::string> departed_;  // nodes that left alone, and why
    bool outlived_ = false;                 // the mount will outlive this process
    std::uint64_t requests_seen_ = 0;
    std::chrono::steady_clock::time_point used_at_ = std::chrono::steady_clock::now();
    Timeline timeline_;
    Timeline::Counts noted_ = {};  // all that is in timeline_
    Timeline::Time ready_;         // the epoch: not yet

    MadeDirectories made_;
    std::optional<Instance> instance_;
    std::unique_ptr<Session> session_;
    std::thread fuse_thread_;
    std::unique_ptr<ControlServer> control_;
};

}  // namespace copper
