// The mount point as the daemon finds it, and makes it if it is asked to.
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "daemon/control/option_defaults.hpp"

namespace copper {

enum class MissingMount { refuse, make };

// Directories made for a mount point, innermost first. Removed (if they are empty) at the end of its life.
class MadeDirectories {
  public:
    MadeDirectories() = default;
    explicit MadeDirectories(std::vector<std::string> paths) : paths_(std::move(paths)) {}
    MadeDirectories(MadeDirectories&& other) noexcept : paths_(std::move(other.paths_)) {
        other.paths_.clear();
    }
    MadeDirectories& operator=(MadeDirectories&& other) noexcept {
        std::swap(paths_, other.paths_);
        return *this;
    }
    ~MadeDirectories();

    const std::vector<std::string>& paths() const { return paths_; }

  private:
    std::vector<std::string> paths_;
};

// Whether a Copper, alive or dead, is mounted there. Reads the mount table, not the mount.
bool is_served(const std::string& mount);

// Checks what can be known before mounting: `mount` (as of canonical_mount()) exists, is not served by a
// Copper, alive or dead, does not lie in a Copper mount or a filesystem of the kernel, and nobody else can
// exchange it or a directory above it. `make` makes it if its parent exists, and for the default mount the
// parent, /tmp/$USER, as well. The errors say what to do.
tl::expected<MadeDirectories, std::string> prepare_mount_point(const std::string& mount,
                                                               MissingMount missing);

}  // namespace copper
