#include "daemon/prefetch.hpp"

#include <algorithm>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

using std::chrono::steady_clock;

// Of the cache: the rest is for what programs use besides.
constexpr std::uint64_t parts_of_budget = 4;
constexpr std::uint64_t parts_to_fill = 3;

bool is_over(Replay::State state) {
    return state != Replay::State::running;
}

}  // namespace

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
    paths_.emplace_back().path = path;
    begin_next();
    return {};
}

void Prefetch::begin_next() {
    for (One& one : paths_) {
        if (one.replay == nullptr) {
            const auto cache = cache_.statistics();
            const std::uint64_t most = cache.budget_bytes / parts_of_budget * parts_to_fill;
            one.budget_bytes = most - std::min(most, cache.bytes);
            Replay::Options options = options_;
            options.bytes_max = one.budget_bytes;
            one.begun = steady_clock::now();
            one.replay = Replay::of_path(
                cache_, options,
                [this](Replay::Task task) {
                    loop_.post([this, task = std::move(task)] {
                        task();
                        begin_next();
                    });
                },
                one.path);
        }
        if (!is_over(one.replay->progress().state)) {
            return;
        }
        one.ended = one.ended.value_or(steady_clock::now());
    }
}

nlohmann::json Prefetch::progress() {
    nlohmann::json paths = nlohmann::json::array();
    bool is_done = true;
    for (One& one : paths_) {
        const auto progress = one.replay != nullptr ? one.replay->progress() : Replay::Progress();
        is_done = is_done && is_over(progress.state);
        const std::chrono::duration<double> taken = one.replay != nullptr
                                                        ? one.ended.value_or(steady_clock::now()) - one.begun
                                                        : steady_clock::duration();
        paths.push_back({{"path", one.path},
                         {"state", to_string(progress.state)},
                         {"fetched", progress.fetched},
                         {"bytes", progress.bytes},
                         {"failed", progress.failed},
                         {"left", progress.left},
                         {"error", progress.error},
                         {"budget_bytes", one.budget_bytes},
                         {"seconds", taken.count()}});
    }
    return {{"done", is_done}, {"paths", std::move(paths)}};
}

}  // namespace copper
