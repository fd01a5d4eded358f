#include "daemon/node.hpp"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "base/mount_table.hpp"
#include "base/own_files.hpp"
#include "base/path.hpp"
#include "base/processes.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/private_directory.hpp"
#include "daemon/control/profile_files.hpp"
#include "daemon/control/sum.hpp"
#include "daemon/log.hpp"
#include "daemon/node_metrics.hpp"
#include "fuse/mount_point.hpp"

namespace copper {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* leave_verb = "leave";
// Argument: the rank that leaves alone, a blank, and the reason.
constexpr const char* departed_verb = "departed";
constexpr const char* leave_together = "together";
constexpr const char* leave_alone = "alone";

constexpr milliseconds stop_patience{10000};  // for all nodes to unmount, unless the request says otherwise
constexpr milliseconds stop_patience_max{600000};
constexpr milliseconds leave_patience{2000};  // for all nodes to hear that they may leave
constexpr milliseconds flush_time_max{2000};  // for a leaving node to send the rest
// For a node that leaves alone: launchers send SIGKILL soon after SIGTERM (Open MPI's mpirun after a second).
constexpr milliseconds flush_time_max_alone{500};
constexpr milliseconds abandoned_after{5000};    // a stopped node that hears nothing more leaves alone
constexpr milliseconds forgotten_margin{30000};  // beyond the ready timeout: for a node that could not start
constexpr std::uint64_t top_paths_of_job_max = 50000;  // reported by all nodes together
// A mirror whose daemon or launcher was lost ends after this time without use: perhaps nobody will ever stop
// it.
constexpr milliseconds unused_time{3600000};
constexpr milliseconds unused_time_without_launcher{15000};
constexpr milliseconds look_for_use_interval{15000};

// When a batch job ends, Flux may kill its shells and leave their processes behind. Other launchers end
// theirs.
bool is_task_of_flux() {
    return std::getenv("FLUX_TASK_RANK") != nullptr;
}

// By its answer to the call to stop.
bool has_seen_all_alive(const Answer::Part& part) {
    return read_json(part.text, [](const json& answer) { return answer.at("nodes_lost") == 0; })
        .value_or(false);
}

Attributes attributes_of_root() {
    struct stat found = {};
    ::lstat("/", &found);
    const auto time = [](const timespec& at) {
        return Timestamp{.seconds = at.tv_sec, .nanoseconds = static_cast<std::uint32_t>(at.tv_nsec)};
    };
    return {.inode = found.st_ino,
            .size = static_cast<std::uint64_t>(found.st_size),
            .blocks = static_cast<std::uint64_t>(found.st_blocks),
            .device = found.st_rdev,
            .mode = found.st_mode,
            .links = static_cast<std::uint32_t>(found.st_nlink),
            .user = found.st_uid,
            .group = found.st_gid,
            .block_bytes = static_cast<std::uint32_t>(found.st_blksize),
            .accessed = time(found.st_atim),
            .modified = time(found.st_mtim),
            .changed = time(found.st_ctim)};
}

std::uint64_t number_of(const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 10);
}

// Appends "." and the rank if the nodes share a machine.
DaemonOptions localised(DaemonOptions options, const Place& place) {
    if (options.local) {
        for (auto* mount : {&options.mount, &options.mount_as_given}) {
            *mount += "." + std::to_string(place.rank);
        }
    }
    return options;
}

Audience audience(const DaemonOptions& options) {
    return options.allow_other ? Audience::everyone : Audience::launching_user;
}

Place place_of(const Fabric& fabric, const std::optional<Succession>& succession) {
    return succession ? succession->place : Place{.rank = fabric.self().value, .nodes = fabric.size()};
}

// One per core. They never wait for an object, so more would bring nothing. And the kernel gives a request to
// the thread that has waited longest, the one of which the processor's cache holds least.
std::size_t fuse_threads() {
    constexpr int least = 2, most = 8;
    cpu_set_t cores;
    const int count = ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : most;
    return static_cast<std::size_t>(std::clamp(count, least, most));
}

ProgressLoop::Options loop_options(const DaemonOptions& options, Cores cores, std::uint32_t nodes) {
    ProgressLoop::Options loop;
    loop.arity = options.arity;
    loop.readers = options.readers;
    loop.mover.deadline = options.deadline;
    loop.mover.spreading.push = options.push;
    loop.cores = cores;
    loop.compression = options.compress;
    if (options.local) {  // all nodes are on this machine, and share its cores
        loop.pacer.pause_crowded = std::min(loop.pacer.pause_crowded * nodes, loop.pacer.pause_max);
        if (loop.compression == Compression::automatic) {
            loop.compression = Compression::off;  // the link is memory
        }
    }
    return loop;
}

// On their way to the node that replays: what all readers read ahead at a time, and as much that waits.
Replay::Options replay_options(const DaemonOptions& options, std::uint32_t nodes) {
    constexpr std::size_t of_a_reader = 48;
    const std::uint32_t readers = std::min(nodes, options.readers);
    return {
        .in_flight_max = of_a_reader * readers,
        .bytes_in_flight_max = std::max<std::uint64_t>(2, readers) * ahead_of_a_reader_extents * extent_bytes,
        .file_bytes_max = options.shared_file_bytes};
}

}  // namespace

const char* to_string(StopReason reason) {
    switch (reason) {
        case StopReason::none:
            return "none";
        case StopReason::asked:
            return "asked to stop";
        case StopReason::signal:
            return "a signal";
        case StopReason::launcher_ended:
            return "its launcher has ended";
        case StopReason::unmounted:
            return "unmounted from outside";
        case StopReason::start_failed:
            return "could not start";
        case StopReason::job_not_ready:
            return "not all nodes could start";
        case StopReason::forgotten:
            return "could not start, and was not told to end";
    }
    return "unknown";
}

Node::Node(DaemonOptions options, std::unique_ptr<Fabric> fabric, std::shared_ptr<ExtentMemory> memory,
           std::string start_error, Cores cores, Supervised supervised)
    : options_(localised(std::move(options), place_of(*fabric, supervised.succession))),
      started_(std::chrono::steady_clock::now()),
      fabric_(std::move(fabric)),
      supervisor_(std::move(supervised.link)),
      launcher_(supervised.launcher),
      launched_by_slurm_(supervised.launched_by_slurm),
      succession_(std::move(supervised.succession)),
      place_(place_of(*fabric_, succession_)),
      trees_(options_.trees),
      replies_(
          options_.job, place_,
          succession_ ? Replies::NameOf() : [this](Rank rank) { return fabric_->name_of(rank); }),
      start_error_(std::move(start_error)),
      backing_(trees_, PathOpener::detect(), std::move(memory),
               options_.allow_other ? PathOpener::Links::refuse : PathOpener::Links::follow),
      uses_(make_use_log()),
      cache_(
          {.budget_bytes = options_.cache_bytes != 0 ? options_.cache_bytes
                                                     : default_cache_bytes(options_.local ? place_.nodes : 1),
           .readers = succession_ ? 1 : std::min(options_.readers, place_.nodes),
           .on_demand = uses_ == nullptr ? nullptr : std::function([this](const ObjectKey& key) {
               if (trees_.contains(key.path)) {
                   uses_->note(key);
               }
           })},
          [this](const ObjectKey& key, FetchFor why) { loop_.want(key, why); }),
      loop_(
          loop_options(options_, cores, fabric_->size()),
          {.trees = trees_,
           .cache = cache_,
           .backing = backing_,
           .fabric = *fabric_,
           .activity = supervised.vitals != nullptr ? &supervised.vitals->activity : nullptr},
          [this](const std::string& verb, const std::string& argument, const ProgressLoop::Later& later) {
              return verb == verb::refresh ? refreshes_.answer(argument, later)
                                           : std::optional(answer(verb, argument));
          },
          [](const std::string& verb, const std::string& argument, const ProgressLoop::Parts& parts) {
              return verb == verb::sum ? joined_sum(argument, parts) : std::nullopt;
          }),
      profile_keeper_(make_profile_keeper()),
      prefetch_(replay_options(options_, fabric_->size()), trees_, loop_, cache_),
      refreshes_(options_.mount, trees_, cache_, session_),
      revalidation_(options_.revalidate.count() != 0
                        ? std::make_unique<Revalidation>(options_.revalidate, backing_, loop_)
                        : nullptr),
      readiness_(loop_, {.nodes = fabric_->size(), .missing_max = options_.allow_missing},
                 [this](ReadyState::Outcome outcome) {
                     if (outcome != ReadyState::Outcome::ready) {
                         stop(StopReason::job_not_ready);
                         stop_job(stop_patience, [](const ProgressLoop::Parts&) {});
                     } else if (!start_error_.empty()) {
                         stop_alone(StopReason::start_failed, start_error_);
                     }
                 }) {}

Node::~Node() {
    clean_up();
}

// A successor reads alone, and tells nobody.
std::unique_ptr<UseLog> Node::make_use_log() const {
    const bool is_recorded =
        options_.profile != profile_auto && options_.profile != profile_off && !succession_;
    return is_recorded && is_asked_for_uses(fabric_->self(), fabric_->size()) ? std::make_unique<UseLog>()
                                                                              : nullptr;
}

std::unique_ptr<ProfileKeeper> Node::make_profile_keeper() {
    if (uses_ == nullptr || fabric_->self() != Rank{0}) {
        return nullptr;
    }
    ProfileKeeper::Options options{
        .file = options_.profile, .substitutes = {}, .replay = replay_options(options_, fabric_->size())};
    options.replay.bytes_max = cache_.statistics().budget_bytes / 2;
    if (!options_.profile_dir.empty()) {
        options.substitutes = {options_.profile_dir + "/" + std::string(base_name(options_.profile)),
                               options_.profile_dir + "/" + profile_name(any_program, trees_.roots())};
    }
    return std::make_unique<ProfileKeeper>(std::move(options), trees_, loop_, cache_, *uses_);
}

int Node::run() {
    if (start_error_.empty()) {
        if (auto started = succession_ ? take_over() : start(); !started) {
            start_error_ = started.error();
            if (!succession_) {
                remove_own_files();  // `copper launch` may leave a record here
            }
            occupant_ = read_instance(instance_directory(::geteuid(), options_.mount));
        }
    }
    if (start_error_.empty()) {
        begin_serving();
    } else {
        spdlog::error("{}", start_error_);
        // While its loop runs, this node can report the error to rank 0, which then ends the job.
        loop_.at(std::chrono::steady_clock::now() + options_.ready_timeout + forgotten_margin,
                 [this] { stop_alone(StopReason::forgotten, to_string(StopReason::forgotten)); });
    }
    if (fabric_->self() == Rank{0} && !succession_) {
        readiness_.begin(options_.ready_timeout);
    }
    loop_.run();
    if (profile_keeper_ != nullptr) {
        profile_keeper_->wait_until_written();
    }
    if (!leaves_mount_to_successor()) {
        clean_up();
    }
    spdlog::info("ended: {}", to_string(stop_reason_));
    // To some launchers, a failure of one process is a reason to end all.
    const bool others_go_on = stop_reason_ == StopReason::start_failed;
    const bool failed = !start_error_.empty() || stop_reason_ == StopReason::job_not_ready;
    return failed && !others_go_on ? 1 : 0;
}

tl::expected<void, std::string> Node::start() {
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
    if (auto listening = listen(); !listening) {
        return listening;
    }
    return mount();
}

// Takes over the lost daemon's mount, and its name on this machine.
tl::expected<void, std::string> Node::take_over() {
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
        if (auto listening = listen(); !listening) {
            spdlog::error("{}", listening.error());
        }
    } else {
        spdlog::error("{}", instance.error());
    }
    auto session =
        Session::resume(session_options(), cache_, fuse_counters_, std::move(succession_->hand_over));
    if (!session) {
        return tl::make_unexpected(session.error());
    }
    session_ = std::move(*session);
    spdlog::warn("process {} was lost ({}); this one goes on with {} and reads the filesystem itself",
                 succession_->lost, succession_->why, options_.mount);
    unmount_if_unused_later();
    tell_supervisor_of_life();
    return {};
}

InstanceRecord Node::make_record() const {
    return {.mount = options_.mount,
            .pid = ::getpid(),
            .pid_started = start_time_of(::getpid()),
            .supervisor = supervisor_.pid(),
            .supervisor_started = start_time_of(supervisor_.pid()),
            .is_alone = succession_.has_value(),
            .user = ::geteuid(),
            .job = options_.job,
            .batch_job = options_.batch_job,
            .batch_run = options_.batch_run,
            .launch = options_.launch,
            .rank = place_.rank,
            .nodes = place_.nodes,
            .trees = trees_.roots(),
            .has_default_trees = options_.has_default_trees,
            .made_directories = made_.paths(),
            .run_everywhere = options_.run_everywhere,
            .log_dir = options_.log_dir,
            .no_view = no_view_};
}

tl::expected<void, std::string> Node::listen() {
    auto server = ControlServer::start(
        {.socket_path = instance_->socket_path()},
        [this](const ControlRequest& request, ControlServer::Reply reply) {
            loop_.post([this, request, reply = std::move(reply)] { handle_request(request, reply); });
        });
    if (!server) {
        return tl::make_unexpected(server.error());
    }
    control_ = std::move(*server);
    return {};
}

SessionOptions Node::session_options() const {
    return {.mount_point = options_.mount,
            .trees = trees_,
            .shared_file_bytes_max = options_.shared_file_bytes,
            .root = attributes_of_root(),
            .main_filesystem =
                trees_.roots().empty() ? "/" : filesystem_root_of(trees_.roots().front(), read_mounts()),
            .symlinks = options_.rewrite_symlinks ? SymlinkPolicy::rewrite : SymlinkPolicy::raw,
            .audience = audience(options_),
            .passthrough = options_.passthrough ? PassthroughPolicy::where_possible : PassthroughPolicy::off,
            .has_selinux = ::access("/sys/fs/selinux", F_OK) == 0,
            .threads = fuse_threads()};
}

tl::expected<void, std::string> Node::mount() {
    auto session = Session::mount(session_options(), cache_, fuse_counters_);
    if (!session) {
        return tl::make_unexpected(session.error());
    }
    session_ = std::move(*session);
    supervisor_.keep(session_->hand_over(), place_, options_.mount);
    return {};
}

void Node::begin_serving() {
    fuse_thread_ = std::thread([this] {
        session_->serve();
        // No effect if the node has already been told to stop.
        loop_.post([this] { stop_alone(StopReason::unmounted, to_string(StopReason::unmounted)); });
    });
    spdlog::info("{} serves {}, as rank {} of {}", host_name(), options_.mount, place_.rank, place_.nodes);
    ready_ = std::chrono::system_clock::now();
    timeline_.add(ready_, {1});
    note_progress_regularly();
    if (revalidation_ != nullptr) {
        revalidation_->begin(succession_ ? Revalidation::Mount::of_others : Revalidation::Mount::is_new);
    }
}

void Node::remove_own_files() {
    control_.reset();
    instance_.reset();
    made_ = MadeDirectories();
}

// Removes everything that others can see, in the reverse order of start(). Idempotent.
void Node::clean_up() {
    control_.reset();
    if (session_ != nullptr) {
        session_->stop();
    }
    supervisor_.release();
    if (fuse_thread_.joinable()) {
        fuse_thread_.join();
    }
    session_.reset();
    instance_.reset();
    made_ = MadeDirectories();
    supervisor_.dismiss();
}

void Node::stop_by_signal(int signal, pid_t sender) {
    loop_.post([this, signal, sender] {
        const std::string why = "signal " + std::to_string(signal) + " (" + ::strsignal(signal) +
                                ") of process " + std::to_string(sender);
        spdlog::info("got {}", why);
        // A SIGTERM from the launcher is no reason to unmount: the launcher may be dying itself while the
        // job's programs go on. People who mean it signal this process themselves, or use `copper stop`. With
        // SIGALRM, Flux ends a job whose time is over.
        if (outlived_ && (sender == launcher_.pid || signal == SIGALRM) && session_ != nullptr) {
            leave_mount_to_successor(why);
        } else {
            stop_alone(StopReason::signal, why);
        }
    });
}

void Node::leave_mount_to_successor(const std::string& why) {
    if (stop_reason_ == StopReason::none) {
        stop_reason_ = StopReason::launcher_ended;
        supervisor_.launcher_ends("its launcher ended it: " + why);
        depart("its launcher ended it: " + why);
    }
}

void Node::tell_supervisor_of_life() {
    supervisor_.is_alive();
    loop_.at(std::chrono::steady_clock::now() + SupervisorLink::alive_interval,
             [this] { tell_supervisor_of_life(); });
}

// Adds to timeline_ what has been counted since the last time.
void Node::note_progress() {
    const auto& backing = backing_.within_trees();
    const Timeline::Counts now = {0,
                                  fuse_counters_.requests,
                                  operations_of(backing),
                                  backing.bytes,
                                  fuse_counters_.bytes_read,
                                  loop_.mover_counters().direct_reads};
    Timeline::Counts more = {};
    std::transform(now.begin(), now.end(), noted_.begin(), more.begin(), std::minus<>());
    timeline_.add(std::chrono::system_clock::now(), more);
    noted_ = now;
}

void Node::note_progress_regularly() {
    note_progress();
    loop_.at(std::chrono::steady_clock::now() + timeline_.step(), [this] { note_progress_regularly(); });
}

void Node::unmount_if_unused_later() {
    if (launched_by_slurm_ && (!succession_ || succession_->loss == Loss::crashed)) {
        return;  // the end of this node would end the job step; with the step, it ends
    }
    loop_.at(std::chrono::steady_clock::now() + look_for_use_interval, [this] {
        const auto now = std::chrono::steady_clock::now();
        if (std::exchange(requests_seen_, fuse_counters_.requests) != fuse_counters_.requests) {
            used_at_ = now;
        } else if (!has_launcher() ? now - used_at_ >= unused_time_without_launcher
                                   : succession_ && now - used_at_ >= unused_time) {
            // The kernel does not know programs in the view as users of this mount.
            if (const auto view = view_kept_by(supervisor_.pid()); view && *view && is_in_use(**view)) {
                used_at_ = now;
            } else {
                unmount_if_unused(options_.mount);
            }
        }
        unmount_if_unused_later();
    });
}

// Flux, which kills a daemon and its shell, makes it look like a crash. (A node alone was started by `copper
// launch`.)
bool Node::has_launcher() const {
    return (!succession_ || succession_->loss == Loss::crashed) &&
           (!is_task_of_flux() || place_.nodes == 1 || is_running(launcher_));
}

void Node::stop(StopReason reason) {
    if (stop_reason_ != StopReason::none) {
        return;
    }
    stop_reason_ = reason;
    if (session_ != nullptr) {
        session_->stop();
    }
    supervisor_.release();
}

void Node::stop_alone(StopReason reason, const std::string& why) {
    if (stop_reason_ != StopReason::none) {
        return;
    }
    if (profile_keeper_ != nullptr) {
        profile_keeper_->finish(ProfileKeeper::Others::are_gone);
    }
    stop(reason);
    // Nothing that others can see is left if the process is killed now.
    instance_.reset();
    made_ = MadeDirectories();
    depart(why);
}

// Tells the others, so that they need not find out by waiting in vain.
void Node::depart(const std::string& why) {
    loop_.announce_leave(departed_verb, std::to_string(fabric_->self().value) + " " + why);
    leave(Parting::alone);
}

void Node::leave(Parting parting) {
    if (!std::exchange(leaving_, true)) {
        parting_ = parting;
        loop_.leave(parting == Parting::together ? flush_time_max : flush_time_max_alone);
    }
}

void Node::stop_job(milliseconds patience, std::function<void(const ProgressLoop::Parts&)> then) {
    loop_.call(verb::stop, std::to_string(patience.count()), patience,
               [this, then = std::move(then)](const ProgressLoop::Parts& parts) {
                   then(parts);
                   // Otherwise MPI_Finalize may wait for a node, or for a link that was broken for a while.
                   const bool all =
                       parts.size() == fabric_->size() && std::ranges::all_of(parts, has_seen_all_alive);
                   loop_.call(leave_verb, all ? leave_together : leave_alone, leave_patience,
                              [](const ProgressLoop::Parts&) {});
               });
}

void Node::handle_request(const ControlRequest& request, const ControlServer::Reply& reply) {
    const auto answer_all = [this, reply](const ProgressLoop::Parts& parts) {
        reply([this, parts] { return replies_.of_each(parts); });
    };
    if (request.verb == verb::stop) {
        stop_job(request.patience, answer_all);
    } else if (request.verb == verb::sum) {
        loop_.call(request.verb, request.argument, request.patience,
                   [this, reply, paths_max = request.argument](const ProgressLoop::Parts& parts) {
                       reply([this, paths_max, parts] { return replies_.of_sum(parts, paths_max); });
                   });
    } else if (request.verb == verb::status || request.verb == verb::stats) {
        loop_.call(request.verb, request.argument, request.patience, answer_all);
    } else if (request.verb == verb::prefetch) {
        reply([answer = answer_prefetch(request.argument)] { return answer; });
    } else if (request.verb == verb::refresh) {
        if (const auto named = Refreshes::with_ids(request.argument)) {
            loop_.call(request.verb, *named, request.patience, answer_all);
        } else {
            reply([this, why = named.error()] { return replies_.refusal(why); });
        }
    } else if (request.verb == verb::keep_view) {
        reply([this, process = request.argument] { return answer_keep_view(process); });
    } else if (request.verb == verb::no_view) {
        reply([answer = answer_no_view(request.argument)] { return answer; });
    } else {
        reply([this, verb = request.verb] { return replies_.refusal("unknown verb: " + verb); });
    }
}

std::string Node::answer(const std::string& verb, const std::string& argument) {
    if (verb == ready_verb) {
        return to_text({.error = start_error_,
                        .taken = taken_,
                        .batch_job = occupant_ ? occupant_->batch_job : "",
                        .batch_run = occupant_ ? occupant_->batch_run : "",
                        .launch = occupant_ ? occupant_->launch : "",
                        .is_served = occupant_ && is_running(*occupant_)});
    }
    if (verb == begin_verb && !start_error_.empty()) {
        if (fabric_->self() != Rank{0}) {  // which reports first
            loop_.post([this] { stop_alone(StopReason::start_failed, start_error_); });
        }
        return json_line({{"host", host_name()}});
    }
    if (verb == begin_verb) {
        outlived_ = static_cast<bool>(supervisor_);
        supervisor_.begin();
        tell_supervisor_of_life();
        if (is_task_of_flux()) {
            unmount_if_unused_later();
        }
        if (profile_keeper_ != nullptr) {
            profile_keeper_->begin();
        }
        return json_line({{"host", host_name()}});
    }
    if (verb == verb::status) {
        return json_line(answer_status());
    }
    if (verb == verb::stats) {
        return json_line(answer_stats(argument));
    }
    if (verb == verb::sum) {
        return json_line(answer_sum(argument));
    }
    if (verb == uses_verb) {
        return uses_ != nullptr ? answer_uses(*uses_, fabric_->self(), argument) : std::string();
    }
    if (verb == verb::stop) {
        return json_line(answer_stop(argument));
    }
    if (verb == departed_verb) {
        return json_line(answer_departed(argument));
    }
    if (verb == leave_verb) {
        return json_line(answer_leave(argument));
    }
    return json_line({{"host", host_name()}, {"error", "unknown verb"}});
}

const char* Node::state() {
    if (!start_error_.empty()) {
        return "failed";
    }
    if (stop_reason_ != StopReason::none) {
        return "stopping";
    }
    // A successor reads alone.
    return succession_ || loop_.is_degraded() ? "degraded" : "serving";
}

std::string Node::why() {
    if (succession_) {
        return "reads alone: " + succession_->why;
    }
    if (start_error_.empty() && loop_.is_degraded()) {
        return "objects came too late, so it has read the filesystem itself within the last minute";
    }
    return start_error_;
}

json Node::silent() const {
    json found = json::object();
    for (const auto& [filesystem, time] : loop_.silent_filesystems()) {
        found[filesystem] = {{"seconds", static_cast<std::uint64_t>(time.count())}, {"nodes", 1U}};
    }
    return found;
}

json Node::paces() const {
    json found = json::object();
    backing_.paces().for_each([&found](const std::string& filesystem, const Pace& pace) {
        if (const auto time = pace.operation_time(); time.count() > 0) {
            found[filesystem] = {{"operation_us", static_cast<std::uint64_t>(time.count())},
                                 {"is_serial", pace.is_serial()}};
        }
    });
    return found;
}

json Node::no_view() const {
    return no_view_.empty() ? json::object() : json{{no_view_, {{"nodes", 1U}}}};
}

json Node::answer_status() {
    const auto& readers = loop_.membership().readers();
    const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - started_;
    return {{"host", host_name()},
            {"state", state()},
            {"mount", options_.mount},
            {"uptime_seconds", uptime.count()},
            {"reader", std::find(readers.begin(), readers.end(), fabric_->self()) != readers.end()},
            {"pid", ::getpid()},
            {"epoch", loop_.membership().epoch()},
            {"alive", loop_.membership().alive().size()},
            {"reads", session_ != nullptr && session_->passes_through() ? "passthrough" : "daemon"},
            {"trees", trees_.roots()},
            {"error", start_error_},
            {"why", why()},
            {"silent", silent()},
            {"paces", paces()},
            {"waiting", cache_.statistics().waiting},
            {"no_view", no_view()},
            {"departed", departed()}};
}

json Node::departed() const {
    json reasons = json::object();
    for (const auto& [rank, why] : departed_) {
        reasons[std::to_string(rank.value)] = why;
    }
    return reasons;
}

json Node::answer_stats(const std::string& paths_max) {
    json stats =
        metrics_of({.fuse = fuse_counters_,
                    .backing = backing_.within_trees(),
                    .local = backing_.outside_trees(),
                    .cache = cache_.statistics(),
                    .fabric = fabric_->counters(),
                    .mover = loop_.mover_counters(),
                    .nodes_lost = loop_.nodes_lost(),
                    .frames_refused = loop_.frames_refused(),
                    .turns = loop_.turns().buckets(),
                    .replay = profile_keeper_ != nullptr ? profile_keeper_->progress() : Replay::Progress()});
    const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - started_;
    stats["host"] = host_name();
    // Schema 1 also has "lost", which a node cannot report about itself.
    stats["state"] = state() == std::string("serving") ? "serving" : "degraded";
    stats["mount"] = options_.mount;
    stats["uptime_seconds"] = uptime.count();
    if (!paths_max.empty()) {
        const std::uint64_t share = std::max<std::uint64_t>(top_paths_of_job_max / fabric_->size(), 10);
        stats["top_paths"] = top_paths(fuse_counters_.hot_paths, std::min(number_of(paths_max), share));
    }
    return stats;
}

json Node::answer_sum(const std::string& paths_max) {
    note_progress();
    const auto to_ms = std::chrono::duration_cast<milliseconds>(ready_.time_since_epoch()).count();
    json node = answer_stats("");
    node["rank"] = place_.rank;
    node["state"] = state();
    node["why"] = why();
    node["trees"] = trees_.roots();
    node["departed"] = departed();
    node["silent"] = silent();
    node["paces"] = paces();
    node["waiting"] = cache_.statistics().waiting;
    node["no_view"] = no_view();
    node["ready_ms"] = static_cast<std::uint64_t>(to_ms);
    node["timeline"] = to_json(timeline_);
    if (const auto wanted = number_of(paths_max); wanted > 0) {
        node["top_paths"] = top_paths(fuse_counters_.hot_paths, SIZE_MAX);
    }
    return sum_of({node}, number_of(paths_max));
}

ControlReply Node::answer_prefetch(const std::string& path) {
    const auto added = path.empty() ? tl::expected<void, std::string>() : prefetch_.add(path);
    return added ? replies_.of_this_node(prefetch_.progress()) : replies_.refusal(added.error());
}

ControlReply Node::answer_keep_view(const std::string& process) {
    const auto view = view_of(static_cast<pid_t>(number_of(process)));
    if (!view) {
        return replies_.refusal(view.error());
    }
    return supervisor_.keep(*view) ? replies_.of_this_node(json::object())
                                   : replies_.refusal("its supervisor does not take it");
}

ControlReply Node::answer_no_view(const std::string& why) {
    no_view_ = why;
    const auto noted = instance_ ? instance_->update(make_record()) : tl::expected<void, std::string>();
    return noted ? replies_.of_this_node(json::object()) : replies_.refusal(noted.error());
}

json Node::answer_stop(const std::string& patience_ms) {
    if (profile_keeper_ != nullptr && stop_reason_ == StopReason::none) {
        profile_keeper_->finish(ProfileKeeper::Others::are_there);
    }
    stop(StopReason::asked);
    // The call to leave comes when all nodes have answered or the asker's patience has ended. It never comes
    // if the asker is lost.
    const milliseconds patience(std::clamp<std::int64_t>(std::strtoll(patience_ms.c_str(), nullptr, 10), 0,
                                                         stop_patience_max.count()));
    loop_.at(std::chrono::steady_clock::now() + patience + abandoned_after,
             [this] { leave(Parting::alone); });
    const bool unmounted = session_ == nullptr || !is_served(options_.mount);
    return {{"host", host_name()},
            {"unmounted", unmounted},
            {"reason", to_string(stop_reason_)},
            {"nodes_lost", loop_.nodes_lost()}};
}

json Node::answer_departed(const std::string& rank_and_why) {
    char* why = nullptr;
    const auto rank = std::strtoull(rank_and_why.c_str(), &why, 10);
    if (rank < fabric_->size() && departed_.size() < departed_told_max) {
        const Rank who{static_cast<std::uint32_t>(rank)};
        spdlog::warn("{} has left:{}", fabric_->name_of(who), why);
        departed_[who] = "it has left:" + std::string(why);
    }
    return {{"host", host_name()}};
}

json Node::answer_leave(const std::string& how) {
    leave(how == leave_together ? Parting::together : Parting::alone);
    return {{"host", host_name()}};
}

}  // namespace copper
