// The names of directories that this node has listed, for the pieces and batches of them that come next.
// Internal to cache/backing/.
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
#include <unordered_map>
#include <vector>

#include "base/guarded.hpp"
#include "cache/backing/packed_names.hpp"
#include "cache/object.hpp"

namespace copper {

struct ListedDirectory {
    ObjectPtr object;                 // a Directory
    std::vector<PackedNames> pieces;  // of its names; none if the Directory has all
    std::optional<Version> listed;    // of the directory itself, unless it changed while it was read

    const Directory& directory() const { return *object->directory(); }
    // A Listing. REQUIRES: there is such a piece.
    ObjectPtr piece(std::size_t number) const;
    std::size_t bytes() const;
};
using ListedDirectoryPtr = std::shared_ptr<const ListedDirectory>;

// Thread-safe. Listing a directory can take seconds, so however many threads ask for one that is not kept, it
// is listed once. The last ones are kept, up to bytes_max; in any case the very last.
class ListedDirectories {
  public:
    static constexpr std::size_t bytes_max = std::size_t{128} << 20;

    // What listing a directory gives: its object, and, if that is no error, the names.
    struct Found {
        ObjectPtr object;
        ListedDirectoryPtr names;
    };
    using List = std::function<Found()>;

    ListedDirectoryPtr find(const std::string& path, std::uint64_t version);
    // What is kept of the directory as it is now, if it has been listed since the last refresh: a client may
    // still know the stamps of before the change whose names it gives.
    ListedDirectoryPtr find(const ObjectKey& key, const Version& listed);
    // Runs `list` once, without a lock. Concurrent callers with the same generation share the result, which
    // is kept.
    Found read(const ObjectKey& key, const List& list);

  private:
    struct Kept {
        std::string path;
        std::uint64_t generation;
        ListedDirectoryPtr directory;

        std::size_t bytes() const { return sizeof(Kept) + 2 * path.size() + directory->bytes(); }
    };
    using Order = std::list<Kept>;
    struct State {
        Order kept;  // the last one read, or used, in front
        std::unordered_multimap<std::string, Order::iterator> by_path;
        std::size_t bytes = 0;
        std::map<std::pair<std::string, std::uint64_t>, std::shared_future<Found>> being_read;
    };
    using Wanted = std::function<bool(const Kept&)>;
    ListedDirectoryPtr find(const std::string& path, const Wanted& wanted);
    static void remove(State& state, Order::iterator kept, Order& leaving);
    static Order keep(State& state, Kept kept);

    Guarded<State> state_;
};

}  // namespace copper
