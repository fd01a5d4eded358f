// Answers "what is `name` in `directory`?" from the objects of the cache.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "cache/batch_evidence.hpp"
#include "cache/cache.hpp"
#include "cache/names.hpp"

namespace copper {

struct ResolvedEntry {
    Attributes attributes;
    std::string target;  // of a symbolic link, as the backing filesystem has it
    bool leads_into_trees = false;
    bool begins_filesystem = false;

    // Without a name. Valid while this object lives.
    Listing::Entry view() const {
        return {.name = {},
                .target = target,
                .attributes = attributes,
                .leads_into_trees = leads_into_trees,
                .begins_filesystem = begins_filesystem};
    }
};

struct Resolution {
    // No value: the name is absent, authoritatively. An error: the backing filesystem's own.
    tl::expected<std::optional<ResolvedEntry>, std::error_code> found;
    // False: it is so for the moment, and the kernel must not keep it (Object::lifetime).
    bool lasts = true;
};

// Thread-safe. All that it is given must outlive it, and it must outlive what it waits for.
class EntryResolver {
  public:
    using Waiter = std::function<void(const Resolution&)>;

    // `asked_alone` is told of paths of which no batch is asked for.
    using AskedAlone = std::function<void(const std::string& path, Foresight)>;
    EntryResolver(
        Cache& cache, const Trees& trees, AskedAlone asked_alone = [](const std::string&, Foresight) {})
        : cache_(cache), trees_(trees), asked_alone_(std::move(asked_alone)) {}

    // Calls `waiter` once, as Cache::get does. The names of a directory within the trees answer for absent
    // names (which cost nothing more, ever); attributes are those of the entry alone or, where BatchEvidence
    // says so, of a batch. Outside the trees, where listing /home may mount ten thousand filesystems, and in
    // a directory that may be searched but not read, the entry alone answers.
    void resolve(const std::string& directory, const std::string& name, Waiter waiter);

    // What the cache has of a name, and keeps. Fetches nothing, and is no use.
    std::optional<ResolvedEntry> known(const std::string& directory, const std::string& name);

  private:
    void resolve_alone(const ObjectKey& key, const Waiter& waiter);
    void resolve_present(const std::string& directory, const std::string& name, const Present& place,
                         const Waiter& waiter);

    Cache& cache_;
    const Trees& trees_;
    const AskedAlone asked_alone_;
    BatchEvidence evidence_;
};

}  // namespace copper
