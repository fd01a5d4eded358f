#include "cache/backing/read_versions.hpp"

#include <algorithm>

namespace copper {

void ReadVersions::note(Kind kind, const std::string& path, const Version& version) {
    auto state = state_.lock();
    Versions& versions = kind == Kind::directory ? state->directories : state->files;
    if (const auto known = versions.find(path); known != versions.end()) {
        known->second.latest = version;
    } else if (state->directories.size() + state->files.size() < paths_max) {
        versions.emplace(path, Noted{.oldest = version, .latest = version});
    } else {
        state->is_full = true;
    }
}

ReadVersions::Paths ReadVersions::next_round() {
    auto state = state_.lock();
    Paths paths;
    const auto add = [&paths](const Versions::value_type& noted) {
        paths.emplace_back(noted.first, noted.second.oldest);
    };
    std::ranges::for_each(state->directories, add);
    const auto& files = state->files;
    const std::size_t count = std::min(files.size(), std::max(paths.size(), files_a_round));
    auto next = files.upper_bound(state->last_file);
    for (std::size_t i = 0; i < count; ++i, ++next) {
        next = next == files.end() ? files.begin() : next;
        add(*next);
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
            const auto known = versions->find(path);
            if (known == versions->end() || known->second.oldest != version) {
                continue;
            }
            if (known->second.latest == version) {
                versions->erase(known);
            } else {
                known->second.oldest = known->second.latest;
            }
        }
    }
}

}  // namespace copper
