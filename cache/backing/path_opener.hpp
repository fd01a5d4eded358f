// Opens paths of the backing filesystem without ever entering a Copper mount or a kernel filesystem.
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

// Thread-safe. Checks the text of a path against the mount table. But a symbolic link on the way could lead
// elsewhere, for instance into this daemon's own mount, which would then wait for itself. So the kernel is
// told to follow no link (openat2, from Linux 5.6). If the kernel is older, or finds a link, this class
// resolves the links and checks the result. Paths from FUSE have no links on the way, so this costs nothing
// on newer kernels. On older ones it costs a readlink per component (answered by the client's dentry cache).
class PathOpener {
  public:
    enum class Method : std::uint8_t { openat2, resolve_first };
    static Method detect();

    // Paths from FUSE have no links on the way, unless somebody has replaced a directory by a link. `refuse`
    // then fails with ELOOP: a daemon that reads for less privileged users must not follow where they lead
    // it. (Before Linux 5.6 there is a moment in which they still could.)
    enum class Links : std::uint8_t { follow, refuse };

    // `mounts` must outlive this.
    PathOpener(MountTable& mounts, Method method, Links links = Links::follow)
        : mounts_(mounts), method_(method), links_(links) {}

    struct Opened {
        UniqueFd fd;
        std::string path;                        // the real place
        std::shared_ptr<const MountMap> mounts;  // used for the check
    };
    // `flags` as for open(2), plus O_CLOEXEC. Does not follow the last component. Counts only the calls of
    // path resolution. Fails with ELOOP in a Copper mount, with ENOENT in a kernel filesystem, and with
    // ESTALE if a mount that held `path` is gone.
    SystemResult<Opened> open(const std::string& path, int flags, ReadCounters& counters);

    // The parent directory of `path` (of the root: the root), opened with O_PATH.
    SystemResult<Opened> open_parent(const std::string& path, ReadCounters& counters);

    // Whether a symbolic link's target is absolute and within `trees`. Follows links outside the trees.
    // Within the trees, follows links only as needed for a "..": programs meet the other links in the mirror.
    bool leads_into(const Trees& trees, const std::string& target, ReadCounters& counters);

  private:
    SystemResult<Opened> open_resolved(const std::string& path, int flags, ReadCounters& counters);
    SystemResult<Opened> open_once(const std::string& path, int flags, std::shared_ptr<const MountMap> mounts,
                                   ReadCounters& counters);

    MountTable& mounts_;
    const Method method_;
    const Links links_;
};

// The error for an obstacle.
int error_of(MountMap::Walk kind);

}  // namespace copper
