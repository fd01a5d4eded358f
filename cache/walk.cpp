#include "cache/walk.hpp"

#include <sys/stat.h>

#include "cache/path.hpp"

namespace copper {
namespace {

constexpr int levels = 2;
constexpr std::size_t directories_max = 256;  // of one directory

void fetch_level(Cache& cache, const std::string& directory, const Listing& listing, int levels_left) {
    std::size_t directories_left = directories_max;
    for (std::size_t i = 0; i < listing.size() && directories_left > 0; ++i) {
        const Listing::Entry entry = listing.at(i);
        if (!S_ISDIR(entry.attributes.mode)) {
            continue;
        }
        --directories_left;
        const std::string below = join_path(directory, entry.name);
        cache.get({.kind = ObjectKind::listing, .path = below},
                  [&cache, below, levels_left](const ObjectPtr& object) {
                      if (levels_left > 1 && object->listing() != nullptr) {
                          fetch_level(cache, below, *object->listing(), levels_left - 1);
                      }
                  });
    }
}

}  // namespace

void fetch_below(Cache& cache, const std::string& directory, const Listing& listing) {
    fetch_level(cache, directory, listing, levels);
}

}  // namespace copper
