// Keeps files of several extents open from one extent to the next. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/guarded.hpp"
#include "base/unique_fd.hpp"
#include "cache/backing/path_opener.hpp"

namespace copper {

// Thread-safe. Opens a file once, however many threads ask for it. Closes it when all its extents have been
// read, or when more than open_files_max are open; a thread that is reading keeps the file open until it is
// done.
class OpenFiles {
  public:
    static constexpr std::size_t open_files_max = 64;

    struct File {
        UniqueFd fd;
        std::uint64_t id = 0;  // tells it from a later opening of the same path
    };
    using FilePtr = std::shared_ptr<const File>;
    using Open = std::function<SystemResult<UniqueFd>()>;

    // The open file, or the result of `open`, which runs without a lock.
    SystemResult<FilePtr> get(const std::string& path, const Open& open);

    // Extent `index` of `extents` has been read.
    void mark_read(const std::string& path, const File& file, std::uint32_t index, std::uint64_t extents);

    void close(const std::string& path, const File& file);

    // Closes everything at `path` and below.
    void forget(std::string_view path);

  private:
    using Opening = std::shared_future<SystemResult<FilePtr>>;
    struct Slot {
        Opening opening;
        std::uint64_t id = 0;
        std::uint64_t last_used = 0;
        std::set<std::uint32_t> read;
    };
    struct State {
        std::unordered_map<std::string, Slot> slots;
        std::uint64_t ticks = 0;
    };
    static Slot evict_if_full(State& state);
    void erase(const std::string& path, std::uint64_t id);

    Guarded<State> state_;
};

}  // namespace copper
