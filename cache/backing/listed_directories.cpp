#include "cache/backing/listed_directories.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace copper {

ObjectPtr ListedDirectory::piece(std::size_t number) const {
    return make_object(pieces.empty() ? directory().names : pieces[number].names());
}

std::size_t ListedDirectory::bytes() const {
    std::size_t bytes = sizeof(ListedDirectory) + object->bytes();
    for (const PackedNames& piece : pieces) {
        bytes += piece.bytes();
    }
    return bytes;
}

// Wherever something leaves the list, it dies after the lock does: that frees much memory.

ListedDirectoryPtr ListedDirectories::find(const std::string& path, const Wanted& wanted) {
    auto state = state_.lock();
    const auto [begin, end] = state->by_path.equal_range(path);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return wanted(*entry.second); });
    if (found == end) {
        return nullptr;
    }
    state->kept.splice(state->kept.begin(), state->kept, found->second);
    return found->second->directory;
}

ListedDirectoryPtr ListedDirectories::find(const std::string& path, std::uint64_t version) {
    return find(path, [version](const Kept& one) { return one.directory->directory().version == version; });
}

ListedDirectoryPtr ListedDirectories::find(const ObjectKey& key, const Version& listed) {
    return find(key.path, [&](const Kept& one) {
        return one.generation == key.generation && one.directory->listed == listed;
    });
}

void ListedDirectories::remove(State& state, Order::iterator kept, Order& leaving) {
    const auto [begin, end] = state.by_path.equal_range(kept->path);
    state.by_path.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == kept; }));
    state.bytes -= kept->bytes();
    leaving.splice(leaving.end(), state.kept, kept);
}

// Returns what had to leave.
ListedDirectories::Order ListedDirectories::keep(State& state, Kept kept) {
    Order leaving;
    const auto [begin, end] = state.by_path.equal_range(kept.path);
    const auto same = std::find_if(begin, end, [&](const auto& entry) {
        return entry.second->directory->directory().version == kept.directory->directory().version;
    });
    if (same != end) {
        remove(state, same->second, leaving);
    }
    state.bytes += kept.bytes();
    state.kept.push_front(std::move(kept));
    state.by_path.emplace(state.kept.front().path, state.kept.begin());
    while (state.bytes > bytes_max && state.kept.size() > 1) {
        remove(state, std::prev(state.kept.end()), leaving);
    }
    return leaving;
}

ListedDirectories::Found ListedDirectories::read(const ObjectKey& key, const List& list) {
    const std::pair what(key.path, key.generation);
    std::promise<Found> promise;
    std::shared_future<Found> others;
    {
        auto state = state_.lock();
        const auto [entry, is_first] = state->being_read.try_emplace(what, std::shared_future<Found>());
        if (is_first) {
            entry->second = promise.get_future().share();
        } else {
            others = entry->second;
        }
    }
    if (others.valid()) {
        return others.get();
    }
    Found found = list();
    Order leaving;
    {
        auto state = state_.lock();
        if (found.names != nullptr) {
            leaving =
                keep(*state, {.path = key.path, .generation = key.generation, .directory = found.names});
        }
        state->being_read.erase(what);
    }
    promise.set_value(found);
    return found;
}

}  // namespace copper
