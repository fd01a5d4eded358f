// What the machine sees of a node: the mount with its directories, the record, and the control socket.
//
// Threads: those of the session and of the control server. All functions belong to the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <tl/expected.hpp>

#include "base/clock.hpp"
#include "base/trees.hpp"
#include "cache/backing/posix_backing.hpp"
#include "cache/cache.hpp"
#include "daemon/control/instance.hpp"
#include "daemon/control/options.hpp"
#include "daemon/control_server.hpp"
#include "daemon/mount_point.hpp"
#include "daemon/page_filler.hpp"
#include "daemon/readiness.hpp"
#include "daemon/refreshes.hpp"
#include "daemon/supervisor.hpp"
#include "fuse/counters.hpp"
#include "fuse/session.hpp"
#include "profile/use_log.hpp"

namespace copper {

// What a node holds of the backing filesystem, and what it counts while programs use it.
struct Store {
    const Trees trees;
    FuseCounters counters;
    PosixBacking backing;
    const std::unique_ptr<UseLog> uses;  // null: nobody asks for it
    Cache cache;
};

// When a batch job ends, Flux may kill its shells and leave their processes behind. Other launchers end
// theirs.
bool is_task_of_flux();

class Mirror {
  public:
    static constexpr std::chrono::milliseconds look_for_use_interval{15000};

    // The references must outlive it.
    Mirror(const DaemonOptions& options, Place place, Store& store, Supervised& supervised,
           PageFiller filler);
    ~Mirror() { clean_up(); }
    Mirror(const Mirror&) = delete;
    Mirror& operator=(const Mirror&) = delete;

    // Mounts or, in a successor, takes over the lost daemon's mount and its name on this machine. `handler`
    // gets what tools ask.
    tl::expected<void, std::string> start(const ControlServer::Handler& handler);
    // Serves programs in a thread, until unmount() or until somebody else unmounts. Then calls `ended` there.
    void serve(std::function<void()> ended);

    // Programs will use these bytes: has the kernel keep them.
    void fill(const ObjectKey& key, const Extent& extent);

    void unmount();
    // Unmounts if there was no use for so long that perhaps nobody will ever stop this mirror, because its
    // daemon or its launcher was lost. Call it every look_for_use_interval.
    void unmount_if_unused();
    // Nothing that others can see is left if the process is killed after unmount() and this.
    void remove_record();
    // Removes everything that others can see, in the reverse order of start(), and dismisses the supervisor.
    // Idempotent.
    void clean_up();

    const std::string& mount_point() const { return options_.mount; }
    Place place() const { return place_; }
    // Why this node has no view, as in InstanceRecord.
    const std::string& no_view() const { return no_view_; }
    tl::expected<void, std::string> note_no_view(const std::string& why);
    bool is_unmounted() const { return session_ == nullptr || !is_served(options_.mount); }
    bool passes_through() const { return session_ != nullptr && session_->passes_through(); }
    // With whoever has the place of a mirror that could not start.
    ReadyAnswer readiness(const std::string& start_error) const;
    Refreshes& refreshes() { return refreshes_; }

  private:
    tl::expected<void, std::string> mount(const ControlServer::Handler& handler);
    tl::expected<void, std::string> take_over(const ControlServer::Handler& handler);
    tl::expected<void, std::string> listen(const ControlServer::Handler& handler);
    InstanceRecord make_record() const;
    SessionOptions session_options() const;
    bool has_launcher() const;

    const DaemonOptions& options_;
    const Place place_;
    Store& store_;
    Supervised& supervised_;
    std::string no_view_;
    Taken taken_ = Taken::nothing;
    std::optional<InstanceRecord> occupant_;  // what has the mount if this node could not start
    std::uint64_t requests_seen_ = 0;
    TimePoint used_at_ = std::chrono::steady_clock::now();

    PageFiller filler_;
    std::uint64_t bytes_filled_ = 0;
    MadeDirectories made_;
    std::optional<Instance> instance_;
    std::unique_ptr<Session> session_;
    Refreshes refreshes_;
    std::thread thread_;
    std::unique_ptr<ControlServer> control_;
};

}  // namespace copper
