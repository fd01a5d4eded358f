// The names of huge directories, kept from one piece to the next. Internal to cache/backing/.
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
    std::optional<Version> listed;  // of the directory itself, unless it changed while it was read
};
using HugeDirectoryPtr = std::shared_ptr<const HugeDirectory>;

// Thread-safe. Reading such a directory takes seconds, so however many threads ask for pieces of one that is
// not kept, it is read once. The last directories_max that were read are kept, or fewer, if they take more
// than bytes_max; in any case the very last one.
class HugeDirectories {
  public:
    static constexpr std::size_t directories_max = 4;
    static constexpr std::size_t bytes_max = std::size_t{64} << 20;

    // What reading a directory gives: its object, and, if that is an Index, the names.
    struct Found {
        ObjectPtr object;
        HugeDirectoryPtr huge;
    };
    using Read = std::function<Found()>;

    HugeDirectoryPtr find(const std::string& path, std::uint64_t version);
    // What is kept of the directory as it is now.
    HugeDirectoryPtr find(const std::string& path, const Version& listed);
    // What `read` finds, which runs without a lock; or what it finds for somebody who came first. If that is
    // huge, it is kept.
    Found read(const std::string& path, const Read& read);
    // Whoever reads `path`, or what is below, from now on reads it anew.
    void forget(std::string_view path);

  private:
    struct Kept {
        std::string path;
        HugeDirectoryPtr directory;
    };
    struct State {
        std::list<Kept> kept;  // the last one read, or used, in front
        std::map<std::string, std::shared_future<Found>> being_read;
    };
    using Wanted = std::function<bool(const HugeDirectory&)>;
    HugeDirectoryPtr find(const std::string& path, const Wanted& wanted);
    static std::list<Kept> keep(State& state, Kept kept);

    Guarded<State> state_;
};

}  // namespace copper
