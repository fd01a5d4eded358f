// Answers "which extended attributes does this path have?" from the objects of the cache.
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

// Thread-safe. `cache` and `trees` must outlive this object, and this object must outlive its waiters.
//
// Programs ask for the attributes of one file (the kernel does that when it starts a program) or of all files
// of a directory (`ls -l`). So the resolver fetches the first name of a directory alone, and a batch of names
// from the second one on. It fetches each path alone outside the trees, if there is neither a Listing nor an
// Index, and if the reader has other names than this node.
class XattrResolver {
  public:
    using Resolution = tl::expected<Xattrs, std::error_code>;
    using Waiter = std::function<void(const Resolution&)>;

    XattrResolver(Cache& cache, const Trees& trees) : cache_(cache), trees_(trees) {}

    // Calls `waiter` once, like Cache::get.
    void resolve(const std::string& path, Waiter waiter);

  private:
    // Forgetting a directory costs one more object.
    static constexpr std::size_t directories_max = 1024;

    // Hashing 512 names takes as long as everything else, and a program that asks for one name asks for all.
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
