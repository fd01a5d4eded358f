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
// a node asks for once it knows of a refresh is another object than all that anybody has read before. So a
// late answer does no harm, and refreshes need no order: nodes that know of the same ones mean the same
// objects.
//
// The bytes of a version of a file have no generation: other bytes have another version.
//
// Thread-safe.
class Generations {
  public:
    // Of refreshed paths. Beyond, each refresh covers everything.
    static constexpr std::size_t paths_max = 64;
    static constexpr std::size_t ids_max = 4096;  // a repeated refresh is known among the last ones

    // False: it has been added before. REQUIRES: a normalised path.
    bool add(const std::string& path, std::uint64_t id);

    // 0 before the first refresh that covers it. A refresh covers a path, what lies below, and what is known
    // of the names and attributes on the way to it: that may say that there is no such path.
    std::uint64_t of(const ObjectKey& key) const;

  private:
    struct Refreshed {
        std::string path;
        std::uint64_t sum = 0;  // of ids
    };
    struct Sums {
        std::uint64_t of_all = 0;         // refreshes
        std::uint64_t of_everything = 0;  // of those that cover everything
        std::vector<Refreshed> paths;
        bool are_too_many = false;  // paths
    };
    struct State {
        std::deque<std::uint64_t> ids;
        std::shared_ptr<const Sums> sums = std::make_shared<const Sums>();
    };

    std::atomic<bool> any_ = false;
    mutable Guarded<State> state_;
};

}  // namespace copper
