#include "daemon/prefetch.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

using std::chrono::steady_clock;

// Of the cache: the rest is for what programs use besides.
constexpr std::uint64_t parts_of_budget = 4;
constexpr std::uint64_t parts_to_fill = 3;

Replay::Options with_room(Replay::Options options, const Cache& cache) {
    options.has_room = [&cache](std::uint64_t bytes) {
        const auto now = cache.statistics();
        return now.bytes + bytes < now.budget_bytes / parts_of_budget * parts_to_fill;
    };
    return options;
}

bool is_over(Replay::State state) {
    return state != Replay::State::running;
}

}  // namespace

Prefetch::Prefetch(Replay::Options options, const Trees& trees, BackingStore& backing, ProgressLoop& loop,
                   Cache& cache)
    : options_(with_room(std::move(options), cache)),
      trees_(trees),
      backing_(backing),
      loop_(loop),
      cache_(cache) {}

tl::expected<void, std::string> Prefetch::add(const std::string& path) {
    if (!is_normalised_path(path)) {
        return tl::unexpected(path + ": not an absolute path");
    }
    if (!trees_.contains(path)) {
        std::string trees;
        for (const auto& root : trees_.roots()) {
            trees += " " + root;
        }
        return tl::unexpected(path + ": lies in no tree of this job (they are" + trees + ")");
    }
    if (paths_.size() >= paths_waiting_max) {
        return tl::unexpected(path + ": too many paths have been asked for");
    }
    One& added = paths_.emplace_back();
    added.path = path;
    added.filesystem = backing_.filesystem_of(path);
    begin_next();
    return {};
}

void Prefetch::begin_next() {
    std::set<std::string_view> busy;  // filesystems
    for (One& one : paths_) {
        if (one.replay == nullptr && !busy.contains(one.filesystem)) {
            one.begun = steady_clock::now();
            one.replay = Replay::of_path(
                cache_, options_,
                [this](Replay::Task task) {
                    loop_.post([this, task = std::move(task)] {
                        task();
                        begin_next();
                    });
                },
                one.path);
        }
        if (one.replay == nullptr || !is_over(one.replay->progress().state)) {
            busy.insert(one.filesystem);
        } else {
            one.ended = one.ended.value_or(steady_clock::now());
        }
    }
}

nlohmann::json Prefetch::progress() {
    const auto silent = loop_.silent_filesystems();
    nlohmann::json paths = nlohmann::json::array();
    for (One& one : paths_) {
        const auto progress = one.replay != nullptr ? one.replay->progress() : Replay::Progress();
        const std::chrono::duration<double> taken = one.replay != nullptr
                                                        ? one.ended.value_or(steady_clock::now()) - one.begun
                                                        : steady_clock::duration();
        const auto silence = silent.find(one.filesystem);
        paths.push_back({{"path", one.path},
                         {"state", to_string(progress.state)},
                         {"done", is_over(progress.state)},
                         {"silent_seconds", silence != silent.end() ? silence->second.count() : 0},
                         {"fetched", progress.fetched},
                         {"bytes", progress.bytes},
                         {"failed", progress.failed},
                         {"left", progress.left},
                         {"error", progress.error},
                         {"seconds", taken.count()}});
    }
    return {{"paths", std::move(paths)}};
}

}  // namespace copper
