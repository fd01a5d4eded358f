#include "cache/backing/huge_directories.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/path.hpp"

namespace copper {

// Directories removed from the list are destroyed after the lock is released, because that frees much memory.

HugeDirectoryPtr HugeDirectories::find(const std::string& path, const Wanted& wanted) {
    auto state = state_.lock();
    const auto found = std::find_if(state->kept.begin(), state->kept.end(), [&](const Kept& kept) {
        return kept.path == path && wanted(*kept.directory);
    });
    if (found == state->kept.end()) {
        return nullptr;
    }
    state->kept.splice(state->kept.begin(), state->kept, found);
    return found->directory;
}

HugeDirectoryPtr HugeDirectories::find(const std::string& path, std::uint64_t version) {
    return find(path, [version](const HugeDirectory& huge) { return huge.index.version == version; });
}

HugeDirectoryPtr HugeDirectories::find(const std::string& path, const Version& listed) {
    return find(path, [&listed](const HugeDirectory& huge) { return huge.listed == listed; });
}

// Returns the directories that had to leave.
std::list<HugeDirectories::Kept> HugeDirectories::keep(State& state, Kept kept) {
    std::list<Kept> leaving;
    const auto same = std::find_if(state.kept.begin(), state.kept.end(), [&kept](const Kept& other) {
        return other.path == kept.path && other.directory->index.version == kept.directory->index.version;
    });
    if (same != state.kept.end()) {
        leaving.splice(leaving.end(), state.kept, same);
    }
    state.kept.push_front(std::move(kept));
    std::size_t bytes = 0;
    std::size_t count = 0;
    const auto first_to_leave = std::find_if(state.kept.begin(), state.kept.end(), [&](const Kept& one) {
        bytes += one.directory->names.bytes();
        return count++ > 0 && (count > directories_max || bytes > bytes_max);
    });
    leaving.splice(leaving.end(), state.kept, first_to_leave, state.kept.end());
    return leaving;
}

HugeDirectories::Found HugeDirectories::read(const std::string& path, const Read& read) {
    std::promise<Found> promise;
    std::shared_future<Found> others;
    {
        auto state = state_.lock();
        const auto [entry, is_first] = state->being_read.try_emplace(path, std::shared_future<Found>());
        if (is_first) {
            entry->second = promise.get_future().share();
        } else {
            others = entry->second;
        }
    }
    if (others.valid()) {
        return others.get();
    }
    Found found = read();
    std::list<Kept> leaving;
    {
        auto state = state_.lock();
        if (found.huge != nullptr) {
            leaving = keep(*state, {.path = path, .directory = found.huge});
        }
        state->being_read.erase(path);
    }
    promise.set_value(found);
    return found;
}

void HugeDirectories::forget(std::string_view path) {
    std::list<Kept> leaving;
    auto state = state_.lock();
    std::erase_if(state->being_read, [path](const auto& entry) { return is_within(entry.first, path); });
    for (auto kept = state->kept.begin(); kept != state->kept.end();) {
        const auto current = kept++;
        if (is_within(current->path, path)) {
            leaving.splice(leaving.end(), state->kept, current);
        }
    }
}

}  // namespace copper
