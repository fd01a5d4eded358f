// Listings of directories that programs have begun.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>

#include "base/guarded.hpp"
#include "cache/object.hpp"

namespace copper {

// Thread-safe. A program lists a directory in several requests. If that has other names meanwhile, it goes on
// with those that it has begun with.
class BegunListings {
  public:
    static constexpr std::size_t listings_max = 64;  // the last ones

    void add(const std::string& path, const ObjectPtr& directory) {
        auto begun = begun_.lock();
        std::erase_if(*begun, [&](const Begun& one) {
            return one.path == path && one.directory->directory()->version == directory->directory()->version;
        });
        begun->push_front({.path = path, .directory = directory});
        if (begun->size() > listings_max) {
            begun->pop_back();
        }
    }

    // The latest of this directory that `is_meant`. Null: none, or it is too long ago.
    template <typename IsMeant>
    ObjectPtr find(const std::string& path, const IsMeant& is_meant) {
        auto begun = begun_.lock();
        const auto found = std::ranges::find_if(*begun, [&](const Begun& one) {
            return one.path == path && is_meant(*one.directory->directory());
        });
        return found != begun->end() ? found->directory : nullptr;
    }

  private:
    struct Begun {
        std::string path;
        ObjectPtr directory;
    };

    Guarded<std::deque<Begun>> begun_;
};

}  // namespace copper
