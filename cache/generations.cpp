#include "cache/generations.hpp"

#include <algorithm>

#include "base/path.hpp"

namespace copper {
namespace {

// A read gives the bytes of this version, or says that the file is of another one.
bool is_named_by_content(const ObjectKey& key) {
    const bool has_bytes = key.kind == ObjectKind::extent || key.kind == ObjectKind::own_extent ||
                           key.kind == ObjectKind::data_map;
    return has_bytes && key.version != 0;
}

// Has attributes of several names in a directory, which is its path.
bool is_batch(ObjectKind kind) {
    return kind == ObjectKind::batch || kind == ObjectKind::xattr_batch || kind == ObjectKind::acl_batch;
}

bool has_names(ObjectKind kind) {
    return kind == ObjectKind::directory || kind == ObjectKind::names || is_batch(kind);
}

bool is_root(std::string_view path) {
    return path == "/";
}

}  // namespace

const Generations::Sums& Generations::State::at(std::string_view path) const {
    static const Sums none;
    const auto found = paths.find(path);
    return found == paths.end() ? none : found->second;
}

bool Generations::add(const Refreshed& refreshed) {
    auto state = state_.lock();
    if (std::ranges::find(state->ids, refreshed.id) != state->ids.end()) {
        return false;
    }
    state->ids.push_back(refreshed.id);
    if (state->ids.size() > ids_max) {
        state->ids.pop_front();
    }
    state->of_all += refreshed.id;
    if (!state->is_full) {
        if (refreshed.reach == Reach::one_level) {
            state->paths[refreshed.path].one_level += refreshed.id;
            state->paths[std::string(parent_path(refreshed.path))].of_a_name += refreshed.id;
        } else {
            state->paths[refreshed.path].below += refreshed.id;
            for (std::string_view path = refreshed.path; !is_root(path);) {
                path = parent_path(path);
                state->paths[std::string(path)].on_the_way += refreshed.id;
            }
        }
        if (state->paths.size() > paths_max) {
            state->is_full = true;
            state->paths.clear();
        }
    }
    any_ = true;
    return true;
}

std::uint64_t Generations::of(const ObjectKey& key) const {
    if (!any_ || is_named_by_content(key)) {
        return 0;
    }
    auto state = state_.lock();
    if (state->is_full) {
        return state->of_all;
    }
    const bool has_bytes = key.kind == ObjectKind::extent || key.kind == ObjectKind::own_extent;
    const Sums& own = state->at(key.path);
    std::uint64_t sum = own.below + own.one_level;
    sum += has_bytes ? 0 : own.on_the_way;
    sum += is_batch(key.kind) ? own.of_a_name : 0;
    if (!has_names(key.kind) && !is_root(key.path)) {
        sum += state->at(parent_path(key.path)).one_level;
    }
    for (std::string_view path = key.path; !is_root(path);) {
        path = parent_path(path);
        sum += state->at(path).below;
    }
    return sum;
}

}  // namespace copper
