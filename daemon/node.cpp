#include "daemon/node.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "base/path.hpp"
#include "daemon/control/option_defaults.hpp"
#include "daemon/control/profile_files.hpp"
#include "daemon/control/view.hpp"

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

// By its answer to the call to stop.
bool has_seen_all_alive(const Answer::Part& part) {
    return read_json(part.text, [](const json& answer) { return answer.at("nodes_lost") == 0; })
        .value_or(false);
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

Place place_of(const Fabric& fabric, const std::optional<Succession>& succession) {
    return succession ? succession->place : Place{.rank = fabric.self().value, .nodes = fabric.size()};
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

Node::Node(DaemonOptions options, std::unique_ptr<Fabric> fabric, std::shared_ptr<ExtentMemory> memory,
           std::string start_error, Cores cores, Supervised supervised, PageFiller filler)
    : options_(localised(std::move(options), place_of(*fabric, supervised.succession))),
      supervised_(std::move(supervised)),
      fabric_(std::move(fabric)),
      store_{.trees = Trees(options_.trees),
             .counters = {},
             .backing =
                 PosixBacking(Trees(options_.trees), PathOpener::detect(), std::move(memory),
                              options_.allow_other ? PathOpener::Links::refuse : PathOpener::Links::follow),
             .uses = make_use_log(),
             .cache = Cache(cache_options(),
                            [this](const ObjectKey& key, FetchFor why) { loop_.want(key, why); })},
      loop_(
          loop_options(options_, cores, fabric_->size()),
          {.trees = store_.trees,
           .cache = store_.cache,
           .backing = store_.backing,
           .fabric = *fabric_,
           .activity = supervised_.vitals != nullptr ? &supervised_.vitals->activity : nullptr,
           .fill = [this](const ObjectKey& key, const Extent& extent) { mirror_.fill(key, extent); }},
          [this](const std::string& verb, const std::string& argument, const ProgressLoop::Later& later) {
              return verb == verb::refresh ? mirror_.refreshes().answer(argument, loop_, later)
                                           : std::optional(answer(verb, argument));
          },
          [](const std::string& verb, const std::string& argument, const ProgressLoop::Parts& parts) {
              return verb == verb::sum ? joined_sum(argument, parts) : std::nullopt;
          }),
      profile_keeper_(make_profile_keeper()),
      revalidation_(options_.revalidate.count() != 0
                        ? std::make_unique<Revalidation>(options_.revalidate, store_.backing, loop_)
                        : nullptr),
      readiness_(loop_, {.nodes = fabric_->size(), .missing_max = options_.allow_missing},
                 [this](ReadyState::Outcome outcome) {
                     if (outcome != ReadyState::Outcome::ready) {
                         stop(StopReason::job_not_ready);
                         stop_job(stop_patience, [](const ProgressLoop::Parts&) {});
                     } else if (lifecycle_.stage() == Lifecycle::Stage::failed) {
                         stop_alone(StopReason::start_failed, lifecycle_.error());
                     }
                 }),
      answers_({.lifecycle = lifecycle_,
                .mirror = mirror_,
                .supervised = supervised_,
                .store = store_,
                .loop = loop_,
                .fabric = *fabric_,
                .profile = profile_keeper_.get()}),
      replies_(
          options_.job, place(),
          supervised_.succession ? Replies::NameOf() : [this](Rank rank) { return fabric_->name_of(rank); }),
      prefetch_(replay_options(options_, fabric_->size()), store_.trees, store_.backing, loop_, store_.cache),
      mirror_(options_, place(), store_, supervised_, std::move(filler)) {
    if (!start_error.empty()) {
        lifecycle_.fail(std::move(start_error));
    }
}

Place Node::place() const {
    return place_of(*fabric_, supervised_.succession);
}

// A successor reads alone, and tells nobody.
std::unique_ptr<UseLog> Node::make_use_log() const {
    const bool is_recorded =
        options_.profile != profile_auto && options_.profile != profile_off && !supervised_.succession;
    return is_recorded && is_asked_for_uses(fabric_->self(), fabric_->size()) ? std::make_unique<UseLog>()
                                                                              : nullptr;
}

Cache::Options Node::cache_options() {
    return {.budget_bytes = options_.cache_bytes != 0
                                ? options_.cache_bytes
                                : default_cache_bytes(options_.local ? place().nodes : 1),
            .readers = supervised_.succession ? 1 : std::min(options_.readers, place().nodes),
            .on_demand = store_.uses == nullptr ? nullptr : std::function([this](const ObjectKey& key) {
                if (store_.trees.contains(key.path)) {
                    store_.uses->note(key);
                }
            })};
}

std::unique_ptr<ProfileKeeper> Node::make_profile_keeper() {
    if (store_.uses == nullptr || fabric_->self() != Rank{0}) {
        return nullptr;
    }
    ProfileKeeper::Options options{
        .file = options_.profile, .substitutes = {}, .replay = replay_options(options_, fabric_->size())};
    options.replay.bytes_max = store_.cache.statistics().budget_bytes / 2;
    if (!options_.profile_dir.empty()) {
        options.substitutes = {options_.profile_dir + "/" + std::string(base_name(options_.profile)),
                               options_.profile_dir + "/" + profile_name(any_program, store_.trees.roots())};
    }
    return std::make_unique<ProfileKeeper>(std::move(options), store_.trees, loop_, store_.cache,
                                           *store_.uses);
}

int Node::run() {
    start();
    if (lifecycle_.stage() == Lifecycle::Stage::failed) {
        spdlog::error("{}", lifecycle_.error());
        // While its loop runs, this node can report the error to rank 0, which then ends the job.
        after(options_.ready_timeout + forgotten_margin,
              [this] { stop_alone(StopReason::forgotten, to_string(StopReason::forgotten)); });
    }
    if (fabric_->self() == Rank{0} && !supervised_.succession) {
        readiness_.begin(options_.ready_timeout);
    }
    loop_.run();
    if (profile_keeper_ != nullptr) {
        profile_keeper_->wait_until_written();
    }
    if (!leaves_mount_to_successor()) {
        mirror_.clean_up();
    }
    spdlog::info("ended: {}", to_string(lifecycle_.reason()));
    return lifecycle_.exit_code();
}

void Node::start() {
    if (lifecycle_.stage() == Lifecycle::Stage::failed) {
        return;
    }
    const auto started = mirror_.start([this](const ControlRequest& request, ControlServer::Reply reply) {
        loop_.post([this, request, reply = std::move(reply)] { handle_request(request, reply); });
    });
    if (!started) {
        lifecycle_.fail(started.error());
        return;
    }
    lifecycle_.mount();
    if (supervised_.succession) {
        unmount_if_unused_later();
        tell_supervisor_of_life();
    }
    mirror_.serve([this] {
        // No effect if the node has already been told to stop.
        loop_.post([this] { stop_alone(StopReason::unmounted, to_string(StopReason::unmounted)); });
    });
    spdlog::info("{} serves {}, as rank {} of {}", host_name(), options_.mount, place().rank, place().nodes);
    answers_.note_ready();
    note_progress_regularly();
    if (supervised_.succession && revalidation_ != nullptr) {
        revalidation_->begin(Revalidation::Mount::of_others);
    }
}

// All nodes serve, or as many as must.
void Node::begin() {
    if (lifecycle_.begin()) {
        supervised_.link.begin();
        tell_supervisor_of_life();
        if (is_task_of_flux()) {
            unmount_if_unused_later();
        }
        if (profile_keeper_ != nullptr) {
            profile_keeper_->begin();
        }
        if (revalidation_ != nullptr) {  // not before: it would take a node that still starts for lost
            revalidation_->begin(Revalidation::Mount::is_new);
        }
    } else if (lifecycle_.stage() == Lifecycle::Stage::failed &&
               fabric_->self() != Rank{0}) {  // which reports first
        loop_.post([this] { stop_alone(StopReason::start_failed, lifecycle_.error()); });
    }
}

void Node::after(milliseconds time, ProgressLoop::Task task) {
    loop_.at(std::chrono::steady_clock::now() + time, std::move(task));
}

void Node::tell_supervisor_of_life() {
    supervised_.link.is_alive();
    after(SupervisorLink::alive_interval, [this] { tell_supervisor_of_life(); });
}

void Node::note_progress_regularly() {
    answers_.note_progress();
    after(answers_.step(), [this] { note_progress_regularly(); });
}

void Node::unmount_if_unused_later() {
    const auto& succession = supervised_.succession;
    if (supervised_.launched_by_slurm && (!succession || succession->loss == Loss::crashed)) {
        return;  // the end of this node would end the job step; with the step, it ends
    }
    after(Mirror::look_for_use_interval, [this] {
        mirror_.unmount_if_unused();
        unmount_if_unused_later();
    });
}

void Node::stop_by_signal(int signal, pid_t sender) {
    loop_.post([this, signal, sender] {
        const std::string why = "signal " + std::to_string(signal) + " (" + ::strsignal(signal) +
                                ") of process " + std::to_string(sender);
        spdlog::info("got {}", why);
        // A SIGTERM from the launcher is no reason to unmount: the launcher may be dying itself while the
        // job's programs go on. People who mean it signal this process themselves, or use `copper stop`. With
        // SIGALRM, Flux ends a job whose time is over.
        const bool is_from_launcher = sender == supervised_.launcher.pid || signal == SIGALRM;
        if (is_from_launcher && lifecycle_.stage() == Lifecycle::Stage::serving) {
            leave_mount_to_successor("its launcher ended it: " + why);
        } else {
            stop_alone(StopReason::signal, why);
        }
    });
}

void Node::leave_mount_to_successor(const std::string& why) {
    if (lifecycle_.stop(StopReason::launcher_ended)) {
        supervised_.link.launcher_ends(why);
        depart(why);
    }
}

void Node::stop(StopReason reason) {
    if (lifecycle_.stop(reason)) {
        mirror_.unmount();
    }
}

void Node::stop_alone(StopReason reason, const std::string& why) {
    if (!lifecycle_.stop(reason)) {
        return;
    }
    if (profile_keeper_ != nullptr) {
        profile_keeper_->finish(ProfileKeeper::Others::are_gone);
    }
    mirror_.unmount();
    mirror_.remove_record();
    depart(why);
}

// Tells the others, so that they need not find out by waiting in vain.
void Node::depart(const std::string& why) {
    loop_.announce_leave(departed_verb, std::to_string(fabric_->self().value) + " " + why);
    leave(Parting::alone);
}

void Node::leave(Parting parting) {
    if (lifecycle_.leave(parting)) {
        loop_.leave(parting == Parting::together ? flush_time_max : flush_time_max_alone);
    }
}

void Node::stop_job(milliseconds patience, Then then) {
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

ControlReply Node::answer_prefetch(const std::string& path) {
    const auto added = path.empty() ? tl::expected<void, std::string>() : prefetch_.add(path);
    return added ? replies_.of_this_node(prefetch_.progress()) : replies_.refusal(added.error());
}

// In the control server's thread.
ControlReply Node::answer_keep_view(const std::string& process) {
    const auto view = view_of(static_cast<pid_t>(std::strtoull(process.c_str(), nullptr, 10)));
    if (!view) {
        return replies_.refusal(view.error());
    }
    return supervised_.link.keep(*view) ? replies_.of_this_node(json::object())
                                        : replies_.refusal("its supervisor does not take it");
}

ControlReply Node::answer_no_view(const std::string& why) {
    const auto noted = mirror_.note_no_view(why);
    return noted ? replies_.of_this_node(json::object()) : replies_.refusal(noted.error());
}

std::string Node::answer(const std::string& verb, const std::string& argument) {
    if (verb == verb::status) {
        return answers_.status();
    }
    if (verb == verb::stats) {
        return answers_.stats(argument);
    }
    if (verb == verb::sum) {
        return answers_.sum(argument);
    }
    if (verb == uses_verb) {
        return store_.uses != nullptr ? answer_uses(*store_.uses, fabric_->self(), argument) : std::string();
    }
    if (verb == ready_verb) {
        return to_text(mirror_.readiness(lifecycle_.error()));
    }
    if (verb == verb::stop) {
        return answer_stop(argument);
    }
    if (verb == begin_verb) {
        begin();
    } else if (verb == departed_verb) {
        answers_.note_departed(argument);
    } else if (verb == leave_verb) {
        stop(StopReason::asked);  // if the call to stop has not come here
        leave(argument == leave_together ? Parting::together : Parting::alone);
    } else {
        return NodeAnswers::with_host({{"error", "unknown verb"}});
    }
    return NodeAnswers::with_host();
}

std::string Node::answer_stop(const std::string& patience_ms) {
    if (lifecycle_.stop(StopReason::asked)) {
        if (profile_keeper_ != nullptr) {
            profile_keeper_->finish(ProfileKeeper::Others::are_there);
        }
        mirror_.unmount();
    }
    // The call to leave comes when all nodes have answered or the asker's patience has ended. It never comes
    // if the asker is lost.
    const milliseconds patience(std::clamp<std::int64_t>(std::strtoll(patience_ms.c_str(), nullptr, 10), 0,
                                                         stop_patience_max.count()));
    after(patience + abandoned_after, [this] { leave(Parting::alone); });
    return NodeAnswers::with_host({{"unmounted", mirror_.is_unmounted()},
                                   {"reason", to_string(lifecycle_.reason())},
                                   {"nodes_lost", loop_.nodes_lost()}});
}

}  // namespace copper
