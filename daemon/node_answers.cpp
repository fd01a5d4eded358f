#include "daemon/node_answers.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "daemon/control/sum.hpp"
#include "daemon/node_metrics.hpp"

namespace copper {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::uint64_t top_paths_of_job_max = 50000;  // reported by all nodes together

std::uint64_t to_number(const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 10);
}

json silent_filesystems(const ProgressLoop& loop) {
    json found = json::object();
    for (const auto& [filesystem, time] : loop.silent_filesystems()) {
        found[filesystem] = {{"seconds", static_cast<std::uint64_t>(time.count())}, {"nodes", 1U}};
    }
    return found;
}

json paces_of(const PosixBacking& backing) {
    json found = json::object();
    backing.paces().for_each([&found](const std::string& filesystem, const Pace& pace) {
        if (const auto time = pace.operation_time(); time.count() > 0) {
            found[filesystem] = {{"operation_us", static_cast<std::uint64_t>(time.count())},
                                 {"is_serial", pace.is_serial()}};
        }
    });
    return found;
}

}  // namespace

std::string NodeAnswers::with_host(json more) {
    more["host"] = host_name();
    return json_line(more);
}

const char* NodeAnswers::state() const {
    if (!from_.lifecycle.error().empty()) {
        return "failed";
    }
    if (from_.lifecycle.is_stopping()) {
        return "stopping";
    }
    // A successor reads alone.
    return from_.supervised.succession || from_.loop.is_degraded() ? "degraded" : "serving";
}

std::string NodeAnswers::why() const {
    if (from_.supervised.succession) {
        return "reads alone: " + from_.supervised.succession->why;
    }
    if (from_.lifecycle.error().empty() && from_.loop.is_degraded()) {
        return "objects came too late, so it has read the filesystem itself within the last minute";
    }
    return from_.lifecycle.error();
}

json NodeAnswers::common() const {
    json departed = json::object();
    for (const auto& [rank, why] : departed_) {
        departed[std::to_string(rank.value)] = why;
    }
    const std::string& no_view = from_.mirror.no_view();
    const std::chrono::duration<double> uptime = std::chrono::steady_clock::now() - started_;
    return {{"mount", from_.mirror.mount_point()},
            {"uptime_seconds", uptime.count()},
            {"state", state()},
            {"why", why()},
            {"trees", from_.store.trees.roots()},
            {"departed", departed},
            {"silent", silent_filesystems(from_.loop)},
            {"paces", paces_of(from_.store.backing)},
            {"waiting", from_.store.cache.statistics().waiting},
            {"no_view", no_view.empty() ? json::object() : json{{no_view, {{"nodes", 1U}}}}}};
}

std::string NodeAnswers::status() const {
    const auto& membership = from_.loop.membership();
    json answer = common();
    answer.update({{"reader", std::ranges::count(membership.readers(), from_.fabric.self()) > 0},
                   {"pid", ::getpid()},
                   {"epoch", membership.epoch()},
                   {"alive", membership.alive().size()},
                   {"reads", from_.mirror.passes_through() ? "passthrough" : "daemon"},
                   {"error", from_.lifecycle.error()}});
    return with_host(std::move(answer));
}

json NodeAnswers::counts(const std::string& paths_max) const {
    const auto& [lifecycle, mirror, supervised, store, loop, fabric, profile] = from_;
    json counts = metrics_of({.fuse = store.counters,
                              .backing = store.backing.within_trees(),
                              .local = store.backing.outside_trees(),
                              .cache = store.cache.statistics(),
                              .fabric = fabric.counters(),
                              .mover = loop.mover_counters(),
                              .nodes_lost = loop.nodes_lost(),
                              .frames_refused = loop.frames_refused(),
                              .turns = loop.turns().buckets(),
                              .replay = profile != nullptr ? profile->progress() : Replay::Progress()});
    if (!paths_max.empty()) {
        const std::uint64_t share = std::max<std::uint64_t>(top_paths_of_job_max / fabric.size(), 10);
        counts["top_paths"] = top_paths(store.counters.hot_paths, std::min(to_number(paths_max), share));
    }
    return counts;
}

std::string NodeAnswers::stats(const std::string& paths_max) const {
    json answer = counts(paths_max);
    const json known = common();
    for (const char* field : {"mount", "uptime_seconds"}) {
        answer[field] = known.at(field);
    }
    // Schema 1 also has "lost", which a node cannot report about itself.
    answer["state"] = known.at("state") == "serving" ? "serving" : "degraded";
    return with_host(std::move(answer));
}

std::string NodeAnswers::sum(const std::string& paths_max) {
    note_progress();
    const auto ready = std::chrono::duration_cast<milliseconds>(ready_.time_since_epoch());
    json answer = counts("");
    answer.update(common());
    answer.update({{"host", host_name()},
                   {"rank", from_.mirror.place().rank},
                   {"ready_ms", static_cast<std::uint64_t>(ready.count())},
                   {"timeline", to_json(timeline_)}});
    const auto wanted = to_number(paths_max);
    if (wanted > 0) {
        answer["top_paths"] = top_paths(from_.store.counters.hot_paths, SIZE_MAX);
    }
    return json_line(sum_of({answer}, wanted));
}

void NodeAnswers::note_ready() {
    ready_ = std::chrono::system_clock::now();
    timeline_.add(ready_, {1});
}

void NodeAnswers::note_progress() {
    const auto& backing = from_.store.backing.within_trees();
    const Timeline::Counts now = {0,
                                  from_.store.counters.requests,
                                  operations_of(backing),
                                  backing.bytes,
                                  from_.store.counters.bytes_read,
                                  from_.loop.mover_counters().direct_reads};
    Timeline::Counts more = {};
    std::transform(now.begin(), now.end(), noted_.begin(), more.begin(), std::minus<>());
    timeline_.add(std::chrono::system_clock::now(), more);
    noted_ = now;
}

void NodeAnswers::note_departed(const std::string& rank_and_why) {
    char* why = nullptr;
    const auto rank = std::strtoull(rank_and_why.c_str(), &why, 10);
    if (rank < from_.fabric.size() && departed_.size() < departed_told_max) {
        const Rank who{static_cast<std::uint32_t>(rank)};
        spdlog::warn("{} has left:{}", from_.fabric.name_of(who), why);
        departed_[who] = "it has left:" + std::string(why);
    }
}

}  // namespace copper
