// Which refreshes an object has seen.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// What of a path is to be refreshed.
enum class Reach : std::uint8_t {
    everything_below,  // and the path, and what is known of the names and attributes on the way to it: that
                       // may say that there is no such path
    one_level,         // its attributes, the names in it, and the attributes of what has these names
};

struct Refreshed {
    std::string path;  // normalised
    Reach reach = Reach::everything_below;
    std::uint64_t id = 0;  // no other refresh has it
};

// A refresh replaces what the job sees at a path. The generation of an object is the sum of the ids of all
// refreshes that cover it, and is part of its key: what a node asks for once it knows of a refresh is another
// object than all that anybody has read before. So a late answer does no harm, and refreshes need no order:
// nodes that know of the same ones mean the same objects.
//
// The bytes of a version of a file have no generation: other bytes have another version.
//
// Thread-safe: one lock, held for a step for each directory on the way to a path.
class Generations {
  public:
    // Of refreshed paths and the directories above them. Beyond, each refresh covers everything.
    static constexpr std::size_t paths_max = 4096;
    static constexpr std::size_t ids_max = 4096;  // a repeated refresh is known among the last ones

    // False: it has been added before.
    bool add(const Refreshed& refreshed);

    // 0 before the first refresh that covers it. REQUIRES: its path is normalised.
    std::uint64_t of(const ObjectKey& key) const;

  private:
    // Sums of the ids of refreshes, by what they cover.
    struct Sums {
        std::uint64_t below = 0;       // this path and everything below
        std::uint64_t on_the_way = 0;  // everything below a path that lies below this one
        std::uint64_t one_level = 0;   // this path
        std::uint64_t of_a_name = 0;   // one level, of a name in this directory
    };
    struct TextHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    struct State {
        std::deque<std::uint64_t> ids;
        std::unordered_map<std::string, Sums, TextHash, std::equal_to<>> paths;
        std::uint64_t of_all = 0;
        bool is_full = false;  // `paths` were too many

        const Sums& at(std::string_view path) const;
    };

    std::atomic<bool> any_ = false;
    mutable Guarded<State> state_;
};

}  // namespace copper
