// Answers "which extended attributes has this path?" from the cache's objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <unordered_map>

#include <tl/expected.hpp>

#include "cache/cache.hpp"
#include "cache/guarded.hpp"
#include "cache/trees.hpp"

namespace copper {

// Thread-safe. `cache` and `trees` must outlive it.
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

    bool is_first_in(const std::string& directory, const std::string& name);

    Cache& cache_;
    const Trees& trees_;
    Guarded<std::unordered_map<std::string, std::string>> first_names_;  // by directory
};

}  // namespace copper
