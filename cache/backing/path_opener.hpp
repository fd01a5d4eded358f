// Opens paths of the backing filesystem without ever walking into a Copper mount or a kernel filesystem.
#pragma once

#include <cstdint>
#include <string>

#include <tl/expected.hpp>

#include "base/mount_table.hpp"
#include "base/trees.hpp"
#include "base/unique_fd.hpp"
#include "cache/backing/counters.hpp"

namespace copper {

// A value, or an errno value.
template <typename T>
using SystemResult = tl::expected<T, int>;

// Thread-safe. A path's text is checked against the mount table, but a symbolic link on the way could lead
// elsewhere: to this daemon's own mount, for instance, which would then wait for itself. So the kernel is
// told to follow none (openat2, from Linux 5.6). Where it refuses, or is older, the links are resolved here
// and the result is checked again. Paths that come from FUSE have no links on the way, so this costs nothing
// on newer kernels, and on older ones one readlink for each component (answered by the client's own dentry
// cache).
class PathOpener {
  public:
    enum class Method : std::uint8_t { openat2, resolve_first };
    static Method detect();

    // Paths that come from FUSE have no links on the way, unless a directory has become one since. `refuse`
    // fails with ELOOP then: a daemon that reads for users with fewer rights must not go where they could
    // lead it. (Before Linux 5.6 there is a moment in which they could all the same.)
    enum class Links : std::uint8_t { follow, refuse };

    // `mounts` must outlive this.
    PathOpener(MountTable& mounts, Method method, Links links = Links::follow)
        : mounts_(mounts), method_(method), links_(links) {}

    struct Opened {
        UniqueFd fd;
        std::string path;                        // where it really is
        std::shared_ptr<const MountMap> mounts;  // by which it was checked
    };
    // `flags` as for open(2); O_CLOEXEC is added. The last component is not followed. Only path resolution's
    // own calls are counted. Fails with ELOOP in a Copper mount, with ENOENT in a kernel filesystem, and with
    // ESTALE where a mount that held `path` is gone.
    SystemResult<Opened> open(const std::string& path, int flags, BackingCounters& counters);

    // The directory that `path` lies in (for the root, the root), as a place to start from (O_PATH).
    SystemResult<Opened> open_parent(const std::string& path, BackingCounters& counters);

    // Whether a symbolic link's target is absolute and lies within `trees`. Links on the way are followed
    // outside the trees; within them only as far as a ".." asks for it, since whoever follows this link
    // meets the others in the mirror.
    bool leads_into(const Trees& trees, const std::string& target, BackingCounters& counters);

  private:
    SystemResult<Opened> open_resolved(const std::string& path, int flags, BackingCounters& counters);
    SystemResult<Opened> open_once(const std::string& path, int flags, std::shared_ptr<const MountMap> mounts,
                                   BackingCounters& counters);

    MountTable& mounts_;
    const Method method_;
    const Links links_;
};

// The error that stands for an obstacle.
int error_of(MountMap::Walk kind);

}  // namespace copper
