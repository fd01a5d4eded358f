// Answers "which extended attributes does this path have?" from the objects of the cache. Access control
// lists are objects of their own: they are asked for by name, one operation for each that a program or the
// kernel wants, and only where somebody wants them.
#pragma once

#include <functional>
#include <string>
#include <system_error>
#include <utility>

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

    // Calls `waiter` once, like Cache::get. All that the filesystem lists; those that are ACLs have no
    // values. ENOTSUP: the filesystem has none for this path.
    void resolve(const std::string& path, Waiter waiter) {
        resolve({.kind = ObjectKind::xattrs, .path = path}, std::move(waiter));
    }
    // None, or one with its value. ENOTSUP: the filesystem has no ACLs.
    void resolve_acl(const std::string& path, AclType type, Waiter waiter) {
        resolve({.kind = ObjectKind::acl, .path = path, .index = static_cast<std::uint32_t>(type)},
                std::move(waiter));
    }

  private:
    // `alone` is the object of the path alone.
    void resolve(const ObjectKey& alone, Waiter waiter);
    void resolve_alone(const ObjectKey& alone, const Waiter& waiter);
    void resolve_present(const ObjectKey& alone, const Present& place, const Waiter& waiter);

    Cache& cache_;
    const Trees& trees_;
    BatchEvidence evidence_;
};

}  // namespace copper
