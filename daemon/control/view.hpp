// The view of a node: a mount namespace in which the mirror lies over the original trees, so programs that
// join it go through the mirror at the usual paths (mount_namespaces(7), user_namespaces(7), setns(2)).
//
// All programs of a node share one, because processes in different user namespaces may not read each other's
// memory (process_vm_readv(2)), which MPI needs between the ranks of a node. The first `copper run` of a node
// makes it. The supervisor keeps it, so it outlives a daemon as the mount does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "base/unique_fd.hpp"

namespace copper {

struct View {
    UniqueFd mount_namespace;
    UniqueFd user_namespace;  // empty: that of this process, which may mount
};

// The view that a supervisor keeps; nothing if there is none yet. Fails in a user namespace other than the
// supervisor's, which keeps its descriptors from this process.
tl::expected<std::optional<View>, std::string> view_kept_by(pid_t supervisor);
// The one in which a process lives.
tl::expected<View, std::string> view_of(pid_t process);

// Whether this process lives in a view of the mirror at `mount`.
bool is_in_view(const std::string& mount, const std::vector<std::string>& trees);
// Whether any process of this user lives in it.
bool is_in_use(const View& view);
// Whether this process is in the mount namespace and the root directory of `process`. A view would lead out
// of any other.
bool is_beside(pid_t process);
// Joins it. The working directory is the one of the same path there. After an error, this process may be in
// neither place: it must end. REQUIRES: this process has one thread.
tl::expected<void, std::string> join(const View& view);

// Uncovers the originals for all programs in the view, where a mirror lies over them; `device` is its device,
// as in Mount. Does not wait: a filesystem on the way may hang.
void uncover(const View& view, const std::string& device);

// Why there is no view.
struct NoView {
    std::string why;
    enum class Where { node, process } where = Where::node;  // nobody can make one; this process cannot
};

// How long to wait for the filesystems that trees lie on: the new view looks up the way to each.
inline constexpr std::chrono::milliseconds view_patience{10000};

// A new view, and a process that keeps it while this object lives. That process may hang in a filesystem, so
// it holds nothing that others need: no lock, no /dev/fuse, no memory of the cache.
class NewView {
  public:
    // `trees`: those of the mirror at `mount`; none to find out whether the node can have a view at all.
    static tl::expected<NewView, NoView> make(const std::string& mount,
                                              const std::vector<std::string>& trees);
    pid_t process() const { return process_; }

  private:
    NewView(pid_t process, UniqueFd life) : process_(process), life_(std::move(life)) {}
    pid_t process_;
    UniqueFd life_;  // the process ends when this is closed
};

}  // namespace copper
