// One node of a job: everything a daemon consists of, wired in one place, and its life from start to end.
//
// Threads: the one that calls run() is the fabric's and the progress loop's; the Session's threads serve
// FUSE; the reader pool's wait for the filesystem; one each for the control socket and for signals. What the
// others have to say about the node's life they post to the loop, so that all its state changes in one
// thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>
#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/cache.hpp"
#include "collectives/fabric.hpp"
#include "daemon/control/instance.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control_server.hpp"
#include "daemon/mount_point.hpp"
#include "daemon/progress_loop.hpp"
#include "daemon/readiness.hpp"
#include "daemon/supervisor.hpp"
#include "fuse/counters.hpp"
#include "fuse/session.hpp"

namespace copper {

enum class StopReason {
    none,   // it runs
    asked,  // by the control verb "stop", here or on another node
    signal,
    launcher_ended,  // and ends this process; another one goes on with the mount
    unmounted,       // somebody else unmounted the mirror
    start_failed,    // of this node
    job_not_ready,   // rank 0: another node did not start
    forgotten,       // a node that could not start, and nobody told it to end
};
const char* to_string(StopReason reason);

// How nodes part, which the fabric must know (MpiFabric::Ending).
enum class Parting { together, alone };

class Node {
  public:
    // `start_error`: why this node cannot serve, known before (its options are wrong on this machine). It
    // takes part in the job all the same, to say so.
    // What the node reads lies in `memory`, as should what its fabric receives.
    Node(DaemonOptions options, std::unique_ptr<Fabric> fabric, std::shared_ptr<ExtentMemory> memory,
         std::string start_error, Cores cores, Supervised supervised);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // From start to end; the process's exit code.
    int run();

    // From any thread: ends the node as a signal does.
    void stop_by_signal(int signal, pid_t sender);

    Fabric& fabric() { return *fabric_; }
    Parting parting() const { return parting_; }
    // A thread waits for the filesystem, and may do so for ever: then the process must end without joining
    // it.
    bool is_stuck() const { return loop_.reads_in_flight() > 0; }
    // Another process goes on with the mount: this one must end as if it were killed.
    bool is_succeeded() const { return stop_reason_ == StopReason::launcher_ended; }

  private:
    tl::expected<void, std::string> start();
    tl::expected<void, std::string> succeed();
    SessionOptions session_options() const;
    tl::expected<void, std::string> mount();
    tl::expected<void, std::string> listen();
    InstanceRecord make_record() const;
    void begin_serving();
    void clean_up();

    // The node's answers to roll calls.
    std::string answer(const std::string& verb, const std::string& argument);
    nlohmann::json answer_status();
    nlohmann::json answer_stats(const std::string& paths_max);
    nlohmann::json answer_stop(const std::string& patience_ms);
    nlohmann::json answer_departed(const std::string& rank_and_why);
    nlohmann::json answer_leave(const std::string& how);
    const char* state();

    void handle_request(const ControlRequest& request, const ControlServer::Reply& reply);
    ControlReply make_reply(const ProgressLoop::Parts& parts) const;
    // Unmounts. The first reason counts.
    void stop(StopReason reason);
    void stop_alone(StopReason reason, const std::string& why);
    void leave_mount_to_successor(const std::string& why);
    // `why`: for the others' logs and for status.
    void depart(const std::string& why);
    void unmount_if_unused_later();
    void tell_supervisor_of_life();
    // Stops all nodes; `then` gets what they say before they leave.
    void stop_job(std::chrono::milliseconds patience, std::function<void(const ProgressLoop::Parts&)> then);
    void leave(Parting parting);

    DaemonOptions options_;
    const TimePoint started_;
    const std::unique_ptr<Fabric> fabric_;
    SupervisorLink supervisor_;
    std::optional<Succession> succession_;  // its hand_over: until it has started
    const Place place_;
    const Trees trees_;
    std::string start_error_;

    FuseCounters fuse_counters_;
    PosixBacking backing_;
    Cache cache_;
    ProgressLoop loop_;
    Readiness readiness_;

    // Of the loop's thread.
    StopReason stop_reason_ = StopReason::none;
    Parting parting_ = Parting::together;
    bool leaving_ = false;
    std::map<Rank, std::string> departed_;  // alone, and why
    bool outlived_ = false;                 // the mount is to outlive this process
    std::uint64_t requests_seen_ = 0;

    MadeDirectories made_;
    std::optional<Instance> instance_;
    std::unique_ptr<Session> session_;
    std::thread fuse_thread_;
    std::unique_ptr<ControlServer> control_;
};

}  // namespace copper
