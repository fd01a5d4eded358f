// Keeps files of several extents open from one extent to the next. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/guarded.hpp"
#include "base/unique_fd.hpp"
#include "cache/backing/path_opener.hpp"

namespace copper {

// Thread-safe. However many threads ask for a version of a file at once, it is opened once. It is closed when
// each of its extents has been read, or when more than open_files_max are open; whoever reads from it then
// keeps it open until it is done. Each version that somebody wants has an opening of its own: one that was
// replaced by another file can be read to its end, and whoever wants the new one gets that.
class OpenFiles {
  public:
    static constexpr std::size_t open_files_max = 64;
    static constexpr std::uint32_t no_extent = UINT32_MAX;

    struct Wanted {
        std::string path;
        std::uint64_t version = 0;  // ObjectKey::version
        auto operator<=>(const Wanted&) const = default;
    };
    struct Opened {
        UniqueFd fd;
        bool has_number = true;  // an inode number that is the same on all nodes
    };
    struct File : Opened {
        std::uint64_t id = 0;  // tells it from a later opening of the same path
    };
    using FilePtr = std::shared_ptr<const File>;
    using Open = std::function<SystemResult<Opened>()>;

    // The file if it is open, otherwise what `open` makes of it. `open` runs without a lock.
    SystemResult<FilePtr> get(const Wanted& wanted, const Open& open);

    // Extent `index` of `extents` has been read; no_extent: something else of the file.
    void mark_read(const Wanted& wanted, const File& file, std::uint32_t index, std::uint64_t extents);

    void close(const Wanted& wanted, const File& file);

  private:
    using Opening = std::shared_future<SystemResult<FilePtr>>;
    struct Slot {
        Opening opening;
        std::uint64_t id = 0;
        std::uint64_t last_used = 0;
        std::set<std::uint32_t> read;
    };
    struct State {
        std::map<Wanted, Slot> slots;
        std::uint64_t ticks = 0;
    };
    static Slot evict_if_full(State& state);
    void erase(const Wanted& wanted, std::uint64_t id);

    Guarded<State> state_;
};

}  // namespace copper
