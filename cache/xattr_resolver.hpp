// Answers "which extended attributes does this path have?" from the objects of the cache.
#pragma once

#include <functional>
#include <string>
#include <system_error>

#include <tl/expected.hpp>

#include "base/trees.hpp"
#include "cache/batch_evidence.hpp"
#include "cache/cache.hpp"
#include "cache/names.hpp"

namespace copper {

// Thread-safe. `cache` and `trees` must outlive this object, and this object must outlive its waiters.
//
// The kernel asks for those of one file when it starts a program, and `ls -l` for those of all files of a
// directory. So a name is asked for alone, or in a batch where BatchEvidence says so. Outside the trees, and
// where the names of a directory are not available, each path is asked for alone.
class XattrResolver {
  public:
    using Resolution = tl::expected<Xattrs, std::error_code>;
    using Waiter = std::function<void(const Resolution&)>;

    XattrResolver(Cache& cache, const Trees& trees) : cache_(cache), trees_(trees) {}

    // Calls `waiter` once, like Cache::get.
    void resolve(const std::string& path, Waiter waiter);

  private:
    void resolve_alone(const std::string& path, const Waiter& waiter);
    void resolve_present(const std::string& path, const Present& place, const Waiter& waiter);

    Cache& cache_;
    const Trees& trees_;
    BatchEvidence evidence_;
};

}  // namespace copper
