// Checks the mount point, and makes it if it is missing.
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "base/fuse_access.hpp"
#include "daemon/control/option_defaults.hpp"

namespace copper {

// Directories made for a mount point, innermost first. Removes them, if empty, at its end. Those that others
// could make then (/tmp/$USER) stay: programs may still look into them.
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

// Whether a Copper, alive or dead, is mounted there. Reads the mount table and does not touch the mount.
bool is_served(const std::string& mount);

// Checks before mounting: no Copper, alive or dead, serves `mount` (as from canonical_mount()), it does not
// lie in a Copper mount or a kernel filesystem, and nobody else can exchange it or a directory above it.
// Makes it if it is missing and its parent exists, on no shared filesystem; for the default mount, also the
// parent, /tmp/$USER, through which an `audience` of everyone can pass. Errors say what to do. `batch_job`:
// this job, for the error if another one serves it.
tl::expected<MadeDirectories, std::string> prepare_mount_point(const std::string& mount,
                                                               Audience audience = Audience::launching_user,
                                                               const std::string& batch_job = {});

// One through which other users cannot pass; empty: there is none.
std::string closed_directory_above(const std::string& mount);

}  // namespace copper
