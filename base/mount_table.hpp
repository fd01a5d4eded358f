// Which paths of this machine Copper must not walk into, from /proc/self/mountinfo (proc(5)).
#pragma once

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

// The file system type under which Copper mounts itself.
inline constexpr std::string_view copper_filesystem_type = "fuse.copper";

struct Mount {
    std::string point;  // a normalised path
    std::string type;
    std::int64_t id = 0;
    std::int64_t parent = 0;   // the id of the mount that `point` lies in
    std::string device = {};   // "major:minor"
    std::string options = {};  // of the filesystem: "rw,user_id=0,..."
};

// The text of a mountinfo file; lines that are not understood are left out.
std::vector<Mount> parse_mounts(std::string_view mountinfo);

// All mounts that this process sees, in the order of the kernel's table (a later one covers an earlier one).
std::vector<Mount> read_mounts();

// One state of the mount table. Immutable.
class MountMap {
  public:
    enum class Walk : std::uint8_t { allowed, copper_mount, kernel_filesystem };
    struct Obstacle {
        Walk kind;
        std::string point;
    };

    // `lost`: the points of mounts that were there before.
    explicit MountMap(const std::vector<Mount>& mounts, std::vector<std::string> lost = {});

    // The first mount on the way to `path` that must not be entered. A mount that another one hides is no
    // obstacle.
    std::optional<Obstacle> obstacle(std::string_view path) const;

    // The names in `directory` that are obstacles themselves.
    std::vector<std::pair<std::string, Walk>> obstacles_in(std::string_view directory) const;

    // Whether a mount that held `path` is gone. What is found there now is another directory.
    bool is_lost(std::string_view path) const;
    // Whether a mount on a name in `directory` is gone.
    bool has_lost_in(std::string_view directory) const;

  private:
    struct Node {
        std::int64_t id;
        std::int64_t parent;
        Walk kind;
    };
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    template <typename T>
    using ByPath = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

    ByPath<std::vector<Node>> points_;
    ByPath<std::vector<std::pair<std::string, Walk>>> obstacles_;  // by the directory they stand in
    std::vector<std::string> lost_;
};

// Thread-safe. Follows changes of the mount table: the kernel flags them on the open file (poll with
// POLLPRI), so an unchanged table is parsed once. Remembers the mounts within `trees` and those that hold
// them: if one of them goes, an empty directory comes to light in its place, which must not be taken for what
// was mounted there. (Not so where an automounter has unmounted what was idle: it mounts it again.)
class MountTable {
  public:
    static constexpr std::size_t remembered_max = 1024;

    explicit MountTable(Trees trees = Trees({}));

    using Walk = MountMap::Walk;
    // What stands in the way of reading `path`: it lies in a Copper mount (this daemon's or another's), or in
    // /proc, /sys, /dev and their like.
    Walk walk(std::string_view path);

    std::shared_ptr<const MountMap> current();

    // What is mounted at `path` and below, and no more than that, is remembered from now on.
    void forget(std::string_view path);

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
