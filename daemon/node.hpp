// One node of a job: wires the parts of a daemon together and leads them from start to end.
//
// Threads: the caller of run() drives the fabric and the progress loop. The Session's threads serve FUSE. The
// reader pool's threads wait for the filesystem. The control socket and the signals have one thread each.
// Other threads post events of the node's life to the loop, so all its state changes in one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "daemon/control/options.hpp"
#include "daemon/control_server.hpp"
#include "daemon/lifecycle.hpp"
#include "daemon/mirror.hpp"
#include "daemon/node_answers.hpp"
#include "daemon/page_filler.hpp"
#include "daemon/prefetch.hpp"
#include "daemon/profile_keeper.hpp"
#include "daemon/progress_loop.hpp"
#include "daemon/readiness.hpp"
#include "daemon/replies.hpp"
#include "daemon/revalidation.hpp"
#include "daemon/supervisor.hpp"
#include "fabric/fabric.hpp"

namespace copper {

class Node {
  public:
    // `start_error`: why this node cannot serve, if that is known already (its options do not fit this
    // machine). The node joins the job all the same, to report it. Objects that the node reads lie in
    // `memory`; what its fabric receives should, too.
    Node(DaemonOptions options, std::unique_ptr<Fabric> fabric, std::shared_ptr<ExtentMemory> memory,
         std::string start_error, Cores cores, Supervised supervised, PageFiller filler);
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // Runs the node from start to end and returns the exit code of the process.
    int run();

    // From any thread: ends the node like a signal.
    void stop_by_signal(int signal, pid_t sender);

    Fabric& fabric() { return *fabric_; }
    Parting parting() const { return lifecycle_.parting(); }
    // A thread waits for the filesystem, perhaps for ever. Then the process must end without joining it.
    bool is_stuck() const {
        return loop_.reads_in_flight() > 0 || (profile_keeper_ != nullptr && profile_keeper_->is_stuck()) ||
               (revalidation_ != nullptr && revalidation_->is_stuck());
    }
    // Another process goes on with the mount, so this one must end as if it had been killed.
    bool leaves_mount_to_successor() const { return lifecycle_.reason() == StopReason::launcher_ended; }

  private:
    Place place() const;
    std::unique_ptr<UseLog> make_use_log() const;
    Cache::Options cache_options();
    std::unique_ptr<ProfileKeeper> make_profile_keeper();
    void start();
    void begin();
    void after(std::chrono::milliseconds time, ProgressLoop::Task task);
    void tell_supervisor_of_life();
    void note_progress_regularly();
    void unmount_if_unused_later();

    // The node's answers to roll calls.
    std::string answer(const std::string& verb, const std::string& argument);
    std::string answer_stop(const std::string& patience_ms);

    // What tools ask over the control socket.
    void handle_request(const ControlRequest& request, const ControlServer::Reply& reply);
    ControlReply answer_prefetch(const std::string& path);
    ControlReply answer_keep_view(const std::string& process);
    ControlReply answer_no_view(const std::string& why);

    // Unmounts.
    void stop(StopReason reason);
    void stop_alone(StopReason reason, const std::string& why);
    // `why` appears in the logs of the others and in status.
    void leave_mount_to_successor(const std::string& why);
    void depart(const std::string& why);
    void leave(Parting parting);
    // Stops all nodes. `then` gets their last answers.
    using Then = std::function<void(const ProgressLoop::Parts&)>;
    void stop_job(std::chrono::milliseconds patience, Then then);

    const DaemonOptions options_;
    Supervised supervised_;
    const std::unique_ptr<Fabric> fabric_;
    Store store_;
    ProgressLoop loop_;
    const std::unique_ptr<ProfileKeeper> profile_keeper_;  // of rank 0, if there is a profile
    const std::unique_ptr<Revalidation> revalidation_;     // null: never

    // For the loop's thread only.
    Lifecycle lifecycle_;
    Readiness readiness_;
    NodeAnswers answers_;
    const Replies replies_;
    Prefetch prefetch_;
    Mirror mirror_;  // last: its threads use the other members
};

}  // namespace copper
