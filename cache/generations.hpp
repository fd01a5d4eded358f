// Which refreshes an object has seen.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// A refresh replaces what the job sees at a path and below it. Each has an id that no other one has. The
// generation of an object is the sum of the ids of all refreshes that cover it, and is part of its key: what
// a node asks for once it knows of a refresh is another object than all that anybody has read before. So
// nothing has to be dropped, a read under way is nobody's mistake, and refreshes need no order: nodes that
// know of the same ones mean the same objects.
//
// The bytes of a version of a file have no generation: other bytes have another version.
//
// Thread-safe.
class Generations {
  public:
    // Of refreshed paths. Beyond, all that was refreshed before is refreshed once more, and everything else.
    static constexpr std::size_t paths_max = 64;
    static constexpr std::size_t ids_max = 4096;  // a repeated refresh is known among the last ones

    // False: it has been added before. REQUIRES: a normalised path.
    bool add(const std::string& path, std::uint64_t id);

    // 0 before the first refresh that covers it. The names and attributes that a directory has of a path are
    // covered where the path is.
    std::uint64_t of(const ObjectKey& key) const;

  private:
    struct Refreshed {
        std::string path;
        std::uint64_t sum = 0;  // of ids
    };
    struct Sums {
        std::uint64_t of_everything = 0;
        std::vector<Refreshed> paths;
    };
    struct State {
        std::deque<std::uint64_t> ids;
        std::shared_ptr<const Sums> sums = std::make_shared<const Sums>();
    };

    std::atomic<bool> any_ = false;
    mutable Guarded<State> state_;
};

}  // namespace copper
