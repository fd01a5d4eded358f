// Answers "what is `name` in `directory`?" from the objects of the cache.
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
    std::string target;  // of a symbolic link, as the backing filesystem has it
    bool leads_into_trees = false;

    // Without a name. Valid while this object lives.
    Listing::Entry view() const {
        return {.name = {}, .target = target, .attributes = attributes, .leads_into_trees = leads_into_trees};
    }
};

// No value: the name is absent, and that is certain. An error: the backing filesystem's own.
using Resolution = tl::expected<std::optional<ResolvedEntry>, std::error_code>;
using ResolutionWaiter = std::function<void(const Resolution&)>;

// Calls `waiter` once, like Cache::get. For a directory within the trees, the Listing answers, so an absent
// name costs nothing more. For a huge one, a piece of its names and a batch of attributes answer. For a
// directory outside the trees, or one that may be searched but not read, only the entry itself is asked.
void resolve(Cache& cache, const Trees& trees, const std::string& directory, const std::string& name,
             ResolutionWaiter waiter);

}  // namespace copper
