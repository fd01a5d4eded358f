#include "daemon/revalidation.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <utility>

#include "base/path.hpp"
#include "daemon/control/control.hpp"
#include "daemon/refreshes.hpp"

namespace copper {
namespace {

// A node answers when no lookup below the path is under way, and those may wait for a slow filesystem.
constexpr std::chrono::milliseconds refresh_patience{60000};

// A node that does not answer is found to be lost, or slow, long before.
constexpr std::chrono::milliseconds sign_patience{10000};

// Beyond, each path would cost all nodes more than to look up again what lies below.
constexpr std::size_t refreshed_alone_max = 32;

std::string what_holds(const std::vector<std::string>& paths) {
    std::string_view directory = paths.front();
    for (const std::string& path : paths) {
        while (!is_within(path, directory)) {
            directory = parent_path(directory);
        }
    }
    return std::string(directory);
}

}  // namespace

std::vector<Refreshed> refreshed_by_change(const std::vector<std::string>& paths) {
    const auto can_be_told = [](const std::string& path) { return is_utf8(path); };
    if (paths.size() > refreshed_alone_max || !std::ranges::all_of(paths, can_be_told)) {
        std::string directory = what_holds(paths);
        while (!can_be_told(directory)) {
            directory = parent_path(directory);
        }
        return {{.path = std::move(directory), .reach = Reach::everything_below}};
    }
    std::vector<Refreshed> refreshed;
    for (const std::string& path : paths) {
        refreshed.push_back({.path = path, .reach = Reach::one_level});
    }
    return refreshed;
}

Revalidation::Revalidation(std::chrono::milliseconds between_rounds, PosixBacking& backing,
                           ProgressLoop& loop)
    : between_rounds_(between_rounds), backing_(backing), loop_(loop) {
    backing_.note_versions_in(versions_);
}

void Revalidation::begin(Mount mount) {
    everything_ = mount == Mount::of_others;
    alive_ = loop_.membership().alive();
    end_round();
}

void Revalidation::end_round() {
    loop_.at(std::chrono::steady_clock::now() + between_rounds_, [this] { begin_round(); });
}

void Revalidation::begin_round() {
    ask_next_node([this] { refresh_or_look(); });
}

// By number, and behind the last one the first: so each node is asked by one.
void Revalidation::ask_next_node(std::function<void()> then) {
    const auto& alive = loop_.membership().alive();
    const auto behind = std::ranges::upper_bound(alive, loop_.membership().self());
    const Rank next = behind != alive.end() ? *behind : alive.front();
    loop_.ask({next}, verb::status, {}, sign_patience,
              [then = std::move(then)](const ProgressLoop::Parts&) { then(); });
}

// One of the others is enough to see to it.
bool Revalidation::has_lost_nodes() {
    const auto& alive = loop_.membership().alive();
    const auto before = std::exchange(alive_, alive);
    return !std::ranges::includes(alive, before) && alive.front() == loop_.membership().self();
}

void Revalidation::refresh_or_look() {
    everything_ = has_lost_nodes() || everything_;
    if (everything_) {
        refresh({{.path = "/"}}, [this](Outcome outcome) {
            everything_ = outcome != Outcome::on_all_nodes;
            end_round();
        });
        return;
    }
    if (versions_.is_full() && !std::exchange(has_warned_, true)) {
        spdlog::warn("this node has read more than {} files and directories, and sees changes of these only",
                     ReadVersions::paths_max);
    }
    const bool begins = threads_.submit([this] {
        std::map<std::string, ReadVersions::Paths> next;
        for (auto& [path, version] : versions_.next_round()) {
            next[backing_.filesystem_of(path)].emplace_back(std::move(path), version);
        }
        loop_.post([this, next = std::move(next)] {
            for (const auto& [filesystem, paths] : next) {
                look_at(filesystem, paths);
            }
            end_round();
        });
    });
    if (!begins) {
        end_round();
    }
}

void Revalidation::look_at(const std::string& filesystem, const ReadVersions::Paths& paths) {
    if (!under_way_.insert(filesystem).second) {
        return;
    }
    ++threads_at_work_;
    const bool begins = threads_.submit([this, filesystem, paths] {
        ReadVersions::Paths changed;
        for (const auto& [path, version] : paths) {
            const auto now = backing_.version_now(path);
            // Any other error is this node's trouble.
            const bool is_gone = !now && (now.error() == ENOENT || now.error() == ENOTDIR);
            if (is_gone || (now && *now != version)) {
                changed.emplace_back(path, version);
            }
        }
        loop_.post(
            [this, filesystem, changed = std::move(changed)] { refresh_changed(filesystem, changed); });
        --threads_at_work_;
    });
    if (!begins) {
        --threads_at_work_;
        under_way_.erase(filesystem);
    }
}

void Revalidation::refresh_changed(const std::string& filesystem, const ReadVersions::Paths& changed) {
    if (changed.empty()) {
        under_way_.erase(filesystem);
        return;
    }
    std::vector<std::string> paths;
    std::ranges::transform(changed, std::back_inserter(paths), [](const auto& one) { return one.first; });
    spdlog::info("{} and {} others have changed", paths.front(), paths.size() - 1);
    refresh(refreshed_by_change(paths), [this, filesystem, changed](Outcome outcome) {
        if (outcome == Outcome::on_all_nodes) {
            versions_.forget(changed);
        }
        under_way_.erase(filesystem);
    });
}

// Where not all nodes do so, the next round tries again.
void Revalidation::refresh(std::vector<Refreshed> refreshed, std::function<void(Outcome)> then) {
    loop_.call(verb::refresh, Refreshes::with_ids(std::move(refreshed)), refresh_patience,
               [this, then = std::move(then)](const ProgressLoop::Parts& parts) {
                   const bool by_all = parts.size() >= loop_.membership().alive().size() &&
                                       std::ranges::all_of(parts, Refreshes::is_done_in_the_end);
                   then(by_all ? Outcome::on_all_nodes : Outcome::not_on_all);
               });
}

}  // namespace copper
