#include "cache/generations.hpp"

#include <algorithm>
#include <utility>

#include "base/path.hpp"

namespace copper {
namespace {

// A read gives the bytes of this version, or says that the file is of another one.
bool is_named_by_content(const ObjectKey& key) {
    const bool has_bytes = key.kind == ObjectKind::extent || key.kind == ObjectKind::own_extent ||
                           key.kind == ObjectKind::data_map;
    return has_bytes && key.version != 0;
}

}  // namespace

bool Generations::add(const std::string& path, std::uint64_t id) {
    auto state = state_.lock();
    if (std::ranges::find(state->ids, id) != state->ids.end()) {
        return false;
    }
    state->ids.push_back(id);
    if (state->ids.size() > ids_max) {
        state->ids.pop_front();
    }
    Sums sums = *state->sums;
    sums.of_all += id;
    const auto same = std::ranges::find(sums.paths, path, &Refreshed::path);
    if (path == "/") {
        sums.of_everything += id;
    } else if (same != sums.paths.end()) {
        same->sum += id;
    } else if (sums.paths.size() < paths_max) {
        sums.paths.push_back({.path = path, .sum = id});
    } else {
        sums.are_too_many = true;
    }
    state->sums = std::make_shared<const Sums>(std::move(sums));
    any_ = true;
    return true;
}

std::uint64_t Generations::of(const ObjectKey& key) const {
    if (!any_ || is_named_by_content(key)) {
        return 0;
    }
    const std::shared_ptr<const Sums> sums = state_.lock()->sums;
    if (sums->are_too_many) {
        return sums->of_all;
    }
    const bool has_bytes = key.kind == ObjectKind::extent || key.kind == ObjectKind::own_extent;
    std::uint64_t sum = sums->of_everything;
    for (const Refreshed& refreshed : sums->paths) {
        if (is_within(key.path, refreshed.path) || (!has_bytes && is_within(refreshed.path, key.path))) {
            sum += refreshed.sum;
        }
    }
    return sum;
}

}  // namespace copper
