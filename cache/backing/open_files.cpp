#include "cache/backing/open_files.hpp"

#include <algorithm>
#include <utility>

namespace copper {

// Slots removed from the table are destroyed after the lock is released, because that may close a file.

OpenFiles::Slot OpenFiles::evict_if_full(State& state) {
    Slot evicted;
    if (state.slots.size() >= open_files_max) {
        const auto oldest = std::min_element(
            state.slots.begin(), state.slots.end(),
            [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; });
        evicted = std::move(oldest->second);
        state.slots.erase(oldest);
    }
    return evicted;
}

SystemResult<OpenFiles::FilePtr> OpenFiles::get(const Wanted& wanted, const Open& open) {
    std::promise<SystemResult<FilePtr>> promise;
    Opening others;
    Slot evicted;
    std::uint64_t id = 0;
    {
        auto state = state_.lock();
        id = ++state->ticks;
        if (const auto found = state->slots.find(wanted); found != state->slots.end()) {
            found->second.last_used = id;
            others = found->second.opening;
        } else {
            evicted = evict_if_full(*state);
            state->slots.emplace(
                wanted, Slot{.opening = promise.get_future().share(), .id = id, .last_used = id, .read = {}});
        }
    }
    if (others.valid()) {
        return others.get();
    }
    SystemResult<FilePtr> file = open().map([id](Opened opened) {
        return std::make_shared<const File>(File{std::move(opened), id});
    });
    promise.set_value(file);
    if (!file) {
        erase(wanted, id);
    }
    return file;
}

void OpenFiles::mark_read(const Wanted& wanted, const File& file, std::uint32_t index,
                          std::uint64_t extents) {
    Slot finished;
    auto state = state_.lock();
    const auto found = state->slots.find(wanted);
    if (found == state->slots.end() || found->second.id != file.id) {
        return;
    }
    if (index < extents) {
        found->second.read.insert(index);
    }
    if (extents <= 1 || found->second.read.size() >= extents) {
        finished = std::move(found->second);
        state->slots.erase(found);
    }
}

void OpenFiles::close(const Wanted& wanted, const File& file) {
    erase(wanted, file.id);
}

void OpenFiles::erase(const Wanted& wanted, std::uint64_t id) {
    Slot closed;
    auto state = state_.lock();
    const auto found = state->slots.find(wanted);
    if (found != state->slots.end() && found->second.id == id) {
        closed = std::move(found->second);
        state->slots.erase(found);
    }
}

}  // namespace copper
