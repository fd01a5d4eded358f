// Answers "which extended attributes has this path?" from the cache's objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <unordered_map>

#include <tl/expected.hpp>

#include "base/guarded.hpp"
#include "base/trees.hpp"
#include "cache/cache.hpp"

namespace copper {

// Thread-safe. `cache` and `trees` must outlive it, and it must outlive what it waits for.
//
// Programs ask for the attributes of one file (the kernel does when it starts a program), or of all files of
// a directory (`ls -l`). So the first name of a directory within the trees is asked for alone, and from the
// second one on a batch of names travels. Outside the trees, where there is neither a Listing nor an Index,
// and where the reader has other names than this node, each path is asked for alone.
class XattrResolver {
  public:
    using Resolution = tl::expected<Xattrs, std::error_code>;
    using Waiter = std::function<void(const Resolution&)>;

    XattrResolver(Cache& cache, const Trees& trees) : cache_(cache), trees_(trees) {}

    // Calls `waiter` once, as Cache::get does.
    void resolve(const std::string& path, Waiter waiter);

  private:
    // Forgetting a directory costs one more object.
    static constexpr std::size_t directories_max = 1024;

    // Hashing 512 names takes as long as all the rest, and whoever asks for one of them asks for all.
    struct NamesHash {
        std::weak_ptr<const Object> of;
        std::uint32_t batch = 0;
        std::uint64_t names = 0;
    };

    bool is_first_in(const std::string& directory, const std::string& name);
    void resolve_by_listing(const std::string& path, const ObjectPtr& object, const Waiter& waiter);
    std::uint64_t hash_of_names(const ObjectPtr& object, std::uint32_t batch);

    Cache& cache_;
    const Trees& trees_;
    Guarded<std::unordered_map<std::string, std::string>> first_names_;  // by directory
    Guarded<NamesHash> last_hash_;
};

}  // namespace copper
