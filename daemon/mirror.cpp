#include "daemon/mirror.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "cache/backing/calls.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/private_directory.hpp"
#include "daemon/control/view.hpp"
#include "fuse/mount_point.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds unused_time{3600000};
constexpr milliseconds unused_time_without_launcher{15000};

Attributes attributes_of_root() {
    BackingCounters not_told;
    ReadProgress progress;
    Pace pace;
    ReadCounters counters(not_told, progress, pace);
    return stat_at(AT_FDCWD, "/", counters).value_or(Attributes());
}

Audience audience(const DaemonOptions& options) {
    return options.allow_other ? Audience::everyone : Audience::launching_user;
}

// One per core. They never wait for an object, so more would bring nothing. And the kernel gives a request to
// the thread that has waited longest, the one of which the processor's cache holds least.
std::size_t fuse_threads() {
    constexpr int least = 2, most = 8;
    cpu_set_t cores;
    const int count = ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : most;
    return static_cast<std::size_t>(std::clamp(count, least, most));
}

}  // namespace

bool is_task_of_flux() {
    return std::getenv("FLUX_TASK_RANK") != nullptr;
}

Mirror::Mirror(const DaemonOptions& options, Place place, Store& store, Supervised& supervised,
               PageFiller filler)
    : options_(options),
      place_(place),
      store_(store),
      supervised_(supervised),
      filler_(std::move(filler)),
      refreshes_(options_.mount, store_.trees, store_.cache, session_) {}

tl::expected<void, std::string> Mirror::start(const ControlServer::Handler& handler) {
    auto started = supervised_.succession ? take_over(handler) : mount(handler);
    if (!started) {
        if (!supervised_.succession) {
            control_.reset();
            remove_record();  // `copper launch` may leave one here
        }
        occupant_ = read_instance(instance_directory(::geteuid(), options_.mount));
    }
    return started;
}

tl::expected<void, std::string> Mirror::mount(const ControlServer::Handler& handler) {
    if (const auto made = make_private_directory(options_.private_directory); !made) {
        if (!why_directory_is_taken(options_.private_directory).empty()) {  // and not: no room in /tmp
            taken_ = Taken::private_directory;
        }
        return tl::make_unexpected(made.error());
    }
    // Links may lead elsewhere than on the other nodes, and programs of all nodes go the way as given.
    if (auto why = why_others_can_exchange(std::string(parent_path(options_.mount_as_given))); !why.empty()) {
        taken_ = Taken::mount;
        return tl::make_unexpected(why + "; or choose another --mount");
    }
    auto made = prepare_mount_point(options_.mount, audience(options_), options_.batch_job);
    if (!made) {
        return tl::make_unexpected(made.error());
    }
    if (const auto closed = closed_directory_above(options_.mount); options_.allow_other && !closed.empty()) {
        spdlog::warn("--allow-other: other users cannot pass {}: chmod o+x {}, or choose another --mount",
                     closed, closed);
    }
    made_ = std::move(*made);
    auto instance = Instance::claim(make_record(), options_.private_directory);
    if (!instance) {
        return tl::make_unexpected(instance.error());
    }
    instance_.emplace(std::move(*instance));
    if (auto listening = listen(handler); !listening) {
        return listening;
    }
    auto session = Session::mount(session_options(), store_.cache, store_.counters);
    if (!session) {
        return tl::make_unexpected(session.error());
    }
    session_ = std::move(*session);
    supervised_.link.keep(session_->hand_over(), place_, options_.mount);
    return {};
}

tl::expected<void, std::string> Mirror::take_over(const ControlServer::Handler& handler) {
    const std::string directory = instance_directory(::geteuid(), options_.mount);
    if (const auto record = read_instance(directory)) {
        made_ = MadeDirectories(record->made_directories);
        no_view_ = record->no_view;
    }
    // If this fails (/tmp may be full), programs need the mount all the same. `copper stop` ends it through
    // the supervisor.
    if (auto instance =
            Instance::claim(make_record(), options_.private_directory, Instance::Predecessor::killed)) {
        instance_.emplace(std::move(*instance));
        if (auto listening = listen(handler); !listening) {
            spdlog::error("{}", listening.error());
        }
    } else {
        spdlog::error("{}", instance.error());
    }
    Succession& succession = *supervised_.succession;
    auto session =
        Session::resume(session_options(), store_.cache, store_.counters, std::move(succession.hand_over));
    if (!session) {
        return tl::make_unexpected(session.error());
    }
    session_ = std::move(*session);
    spdlog::warn("process {} was lost ({}); this one goes on with {} and reads the filesystem itself",
                 succession.lost, succession.why, options_.mount);
    return {};
}

InstanceRecord Mirror::make_record() const {
    return {.mount = options_.mount,
            .pid = ::getpid(),
            .pid_started = start_time_of(::getpid()),
            .supervisor = supervised_.link.pid(),
            .supervisor_started = start_time_of(supervised_.link.pid()),
            .is_alone = supervised_.succession.has_value(),
            .user = ::geteuid(),
            .job = options_.job,
            .batch_job = options_.batch_job,
            .batch_run = options_.batch_run,
            .launch = options_.launch,
            .rank = place_.rank,
            .nodes = place_.nodes,
            .trees = store_.trees.roots(),
            .has_default_trees = options_.has_default_trees,
            .made_directories = made_.paths(),
            .run_everywhere = options_.run_everywhere,
            .log_dir = options_.log_dir,
            .no_view = no_view_};
}

tl::expected<void, std::string> Mirror::listen(const ControlServer::Handler& handler) {
    auto server = ControlServer::start({.socket_path = instance_->socket_path()}, handler);
    if (!server) {
        return tl::make_unexpected(server.error());
    }
    control_ = std::move(*server);
    return {};
}

SessionOptions Mirror::session_options() const {
    return {.mount_point = options_.mount,
            .trees = store_.trees,
            .shared_file_bytes_max = options_.shared_file_bytes,
            .root = attributes_of_root(),
            .main_filesystem = store_.trees.roots().empty()
                                   ? "/"
                                   : filesystem_root_of(store_.trees.roots().front(), read_mounts()),
            .symlinks = options_.rewrite_symlinks ? SymlinkPolicy::rewrite : SymlinkPolicy::raw,
            .audience = audience(options_),
            .passthrough = options_.passthrough ? PassthroughPolicy::where_possible : PassthroughPolicy::off,
            .has_selinux = ::access("/sys/fs/selinux", F_OK) == 0,
            .threads = fuse_threads(),
            .page_filler = filler_.process()};
}

void Mirror::serve(std::function<void()> ended) {
    thread_ = std::thread([this, ended = std::move(ended)] {
        session_->serve();
        ended();
    });
}

// The kernel's copy is the second one, so it may be as large as half of the cache.
void Mirror::fill(const ObjectKey& key, const Extent& extent) {
    const bool has_room = bytes_filled_ + extent.plain_bytes <= store_.cache.statistics().budget_bytes / 2;
    if (has_room && !passes_through()) {  // passthrough would take the filler for a program
        bytes_filled_ += extent.plain_bytes;
        filler_.fill(options_.mount + key.path, key.index * extent_bytes, extent.plain_bytes);
    }
}

void Mirror::unmount() {
    filler_.end();
    if (session_ != nullptr) {
        session_->stop();
    }
    supervised_.link.release();
}

void Mirror::unmount_if_unused() {
    const auto now = std::chrono::steady_clock::now();
    const std::uint64_t requests = store_.counters.requests;
    if (std::exchange(requests_seen_, requests) != requests) {
        used_at_ = now;
        return;
    }
    const bool is_over = !has_launcher() ? now - used_at_ >= unused_time_without_launcher
                                         : supervised_.succession && now - used_at_ >= unused_time;
    if (!is_over) {
        return;
    }
    // The kernel does not know programs in the view as users of this mount.
    if (const auto view = view_kept_by(supervised_.link.pid()); view && *view && is_in_use(**view)) {
        used_at_ = now;
    } else {
        copper::unmount_if_unused(options_.mount);
    }
}

// Flux, which kills a daemon and its shell, makes it look like a crash. (A node alone was started by `copper
// launch`.)
bool Mirror::has_launcher() const {
    return (!supervised_.succession || supervised_.succession->loss == Loss::crashed) &&
           (!is_task_of_flux() || place_.nodes == 1 || is_running(supervised_.launcher));
}

void Mirror::remove_record() {
    instance_.reset();
    made_ = MadeDirectories();
}

void Mirror::clean_up() {
    control_.reset();
    unmount();
    if (thread_.joinable()) {
        thread_.join();
    }
    session_.reset();
    remove_record();
    supervised_.link.dismiss();
}

tl::expected<void, std::string> Mirror::note_no_view(const std::string& why) {
    no_view_ = why;
    return instance_ ? instance_->update(make_record()) : tl::expected<void, std::string>();
}

ReadyAnswer Mirror::readiness(const std::string& start_error) const {
    return {.error = start_error,
            .taken = taken_,
            .batch_job = occupant_ ? occupant_->batch_job : "",
            .batch_run = occupant_ ? occupant_->batch_run : "",
            .launch = occupant_ ? occupant_->launch : "",
            .is_served = occupant_ && is_running(*occupant_)};
}

}  // namespace copper
