#include "cache/backing/read_versions.hpp"

#include <algorithm>

namespace copper {

void ReadVersions::note(Kind kind, const std::string& path, const Version& version) {
    auto state = state_.lock();
    Versions& versions = kind == Kind::directory ? state->directories : state->files;
    if (const auto known = versions.find(path); known != versions.end()) {
        known->second = version;
    } else if (state->directories.size() + state->files.size() < paths_max) {
        versions.emplace(path, version);
    } else {
        state->is_full = true;
    }
}

ReadVersions::Paths ReadVersions::next_round() {
    auto state = state_.lock();
    Paths paths(state->directories.begin(), state->directories.end());
    const auto& files = state->files;
    const std::size_t count = std::min(files.size(), std::max(paths.size(), files_a_round));
    auto next = files.upper_bound(state->last_file);
    for (std::size_t i = 0; i < count; ++i, ++next) {
        next = next == files.end() ? files.begin() : next;
        paths.emplace_back(*next);
    }
    if (count != 0) {
        state->last_file = paths.back().first;
    }
    return paths;
}

void ReadVersions::forget(const Paths& paths) {
    auto state = state_.lock();
    for (const auto& [path, version] : paths) {
        for (Versions* versions : {&state->directories, &state->files}) {
            if (const auto known = versions->find(path);
                known != versions->end() && known->second == version) {
                versions->erase(known);
            }
        }
    }
}

}  // namespace copper
