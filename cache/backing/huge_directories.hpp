// Keeps the names of huge directories from one piece to the next. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/guarded.hpp"
#include "cache/backing/directory_names.hpp"

namespace copper {

struct HugeDirectory {
    Index index;
    DirectoryNames names;
    std::optional<Version> listed;  // of the directory itself, unless it changed during the read
};
using HugeDirectoryPtr = std::shared_ptr<const HugeDirectory>;

// Thread-safe. Reading a huge directory takes seconds, so it is read once, however many threads ask for its
// pieces. Keeps the last directories_max directories, fewer if they exceed bytes_max, but always the very
// last one.
class HugeDirectories {
  public:
    static constexpr std::size_t directories_max = 4;
    static constexpr std::size_t bytes_max = std::size_t{64} << 20;

    // The result of reading a directory: its object and, if the object is an Index, the names.
    struct Found {
        ObjectPtr object;
        HugeDirectoryPtr huge;
    };
    using Read = std::function<Found()>;

    HugeDirectoryPtr find(const std::string& path, std::uint64_t version);
    // The kept directory, if it is still the present one.
    HugeDirectoryPtr find(const std::string& path, const Version& listed);
    // Calls `read` without a lock, or waits for another thread that is reading this path. Keeps the result if
    // it is huge.
    Found read(const std::string& path, const Read& read);
    // Callers read `path` and everything below it anew from now on.
    void forget(std::string_view path);

  private:
    struct Kept {
        std::string path;
        HugeDirectoryPtr directory;
    };
    struct State {
        std::list<Kept> kept;  // the most recently used in front
        std::map<std::string, std::shared_future<Found>> being_read;
    };
    using Wanted = std::function<bool(const HugeDirectory&)>;
    HugeDirectoryPtr find(const std::string& path, const Wanted& wanted);
    static std::list<Kept> keep(State& state, Kept kept);

    Guarded<State> state_;
};

}  // namespace copper
