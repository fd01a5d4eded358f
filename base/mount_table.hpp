// The mount table of this machine (/proc/self/mountinfo, proc(5)), and which paths Copper must not enter.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/guarded.hpp"
#include "base/trees.hpp"
#include "base/unique_fd.hpp"

namespace copper {

// The filesystem type of Copper's own mounts.
inline constexpr std::string_view copper_filesystem_type = "fuse.copper";

struct Mount {
    std::string point;  // normalised
    std::string type;
    std::int64_t id = 0;
    std::int64_t parent = 0;   // the id of the mount that contains `point`
    std::string device = {};   // "major:minor"
    std::string options = {};  // the filesystem's own: "rw,user_id=0,..."
    std::string source = {};   // what was mounted, by the filesystem's own rules: "server:/export"
    std::string root = {};     // the place in the filesystem that `point` shows
};

// Its type does not tell.
bool is_moosefs(const Mount& mount);

// Who has mounted a FUSE filesystem. Nothing for others.
std::optional<uid_t> user_of(const Mount& mount);

// Parses the text of a mountinfo file. Skips lines that are malformed.
std::vector<Mount> parse_mounts(std::string_view mountinfo);

// All mounts that this process sees, in the kernel's order: a later mount covers an earlier one.
std::vector<Mount> read_mounts();

// The highest directory on the way to `path` from which on all is on one filesystem, by the text of the path.
std::string filesystem_root_of(std::string_view path, const std::vector<Mount>& mounts);

// One state of the mount table. Immutable.
class MountMap {
  public:
    enum class Walk : std::uint8_t { allowed, copper_mount, kernel_filesystem };
    struct Obstacle {
        Walk kind;
        std::string point;
    };

    // `lost`: the points of earlier mounts that are gone.
    explicit MountMap(const std::vector<Mount>& mounts, std::vector<std::string> lost = {});

    // The first mount on the way to `path` that Copper must not enter. A hidden mount is no obstacle.
    std::optional<Obstacle> obstacle(std::string_view path) const;

    // The names in `directory` that are obstacles.
    std::vector<std::pair<std::string, Walk>> obstacles_in(std::string_view directory) const;

    // The filesystem that `path` is on: where it is mounted, by the text of the path. If it is mounted in
    // several places, the first of them.
    std::string filesystem_of(std::string_view path) const;

    // Whether inode numbers of the filesystem of `path` are the same on all nodes, and stay.
    bool numbers_files(std::string_view path) const;

    // Whether both have the same mounts on the way to `path`, at `path` included.
    bool agrees(const MountMap& other, std::string_view path) const;

    // Whether `path` was on a mount that is gone. The path now leads to another directory.
    bool is_lost(std::string_view path) const;
    // Whether a name in `directory` was a mount point whose mount is gone.
    bool has_lost_in(std::string_view directory) const;

  private:
    // One of the mounts that are stacked on a point.
    struct Layer {
        std::int64_t id;
        std::int64_t parent;
        Walk kind;
        bool operator==(const Layer&) const = default;
    };
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    template <typename T>
    using ByPath = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

    ByPath<std::vector<Layer>> points_;
    ByPath<std::vector<std::pair<std::string, Walk>>> obstacles_;  // by the directory that contains them
    std::unordered_map<std::int64_t, std::string> filesystems_;    // by the mount's id
    std::set<std::string> numberless_;                             // filesystems
    std::set<std::string> numberless_in_snapshots_;                // the same
    std::vector<std::string> lost_;
};

// Thread-safe. Follows changes of the mount table: the kernel flags a change on the open file (poll with
// POLLPRI), so an unchanged table is parsed once. Remembers the mounts that lie within `trees` or contain
// them. If one of these mounts goes away, an empty directory appears in its place, and Copper must not
// mistake it for the mounted one. (An automounter may unmount an idle filesystem and will mount it again, so
// such a mount does not count as lost.)
class MountTable {
  public:
    static constexpr std::size_t remembered_max = 1024;

    explicit MountTable(Trees trees = Trees({}));

    using Walk = MountMap::Walk;
    // Whether `path` may be read: not if it is in a Copper mount (this daemon's or another's), or in /proc,
    // /sys, /dev and the like.
    Walk walk(std::string_view path);

    std::shared_ptr<const MountMap> current();

  private:
    struct State {
        UniqueFd mountinfo;
        std::vector<Mount> mounts;
        std::set<std::string, std::less<>> remembered;  // points
        std::shared_ptr<const MountMap> map;
    };
    void read(State& state) const;
    void take(State& state) const;
    void follow(State& state) const;

    const Trees trees_;
    Guarded<State> state_;
};

}  // namespace copper
