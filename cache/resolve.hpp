// Answers "what is `name` in `directory`?" from the cache's objects, whichever of them holds the answer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <system_error>

#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "cache/cache.hpp"

namespace copper {

struct ResolvedEntry {
    Attributes attributes;
    std::string target;  // of a symbolic link, as on the backing filesystem
    bool leads_into_trees = false;

    // Without a name; valid as long as this lives.
    Listing::Entry view() const {
        return {.name = {}, .target = target, .attributes = attributes, .leads_into_trees = leads_into_trees};
    }
};

// No value: the name is absent, authoritatively. An error: the backing filesystem's own.
using Resolution = tl::expected<std::optional<ResolvedEntry>, std::error_code>;
using ResolutionWaiter = std::function<void(const Resolution&)>;

// Calls `waiter` once, as Cache::get does. A directory within the trees is answered from its Listing (so an
// absent name costs nothing more, ever), or, if it is huge, from a piece of its names and a batch of their
// attributes; a directory outside the trees, or one that may be searched but not read, from the entry alone.
void resolve(Cache& cache, const Trees& trees, const std::string& directory, const std::string& name,
             ResolutionWaiter waiter);

}  // namespace copper
