#include "base/mount_table.hpp"

#include <fcntl.h>
#include <libmount.h>
#include <poll.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <sstream>
#include <unordered_set>

#include "base/path.hpp"

namespace copper {
namespace {

constexpr const char* mountinfo_path = "/proc/self/mountinfo";
constexpr std::int64_t outside = -1;  // the parent of a mount whose parent is not in the table
constexpr std::array<std::string_view, 3> kernel_directories = {"/dev", "/proc", "/sys"};

bool is_kernel_type(std::string_view type) {
    static constexpr std::string_view types[] = {
        "bpf",     "cgroup",    "cgroup2", "configfs", "debugfs", "devpts",     "devtmpfs", "efivarfs",
        "fusectl", "hugetlbfs", "mqueue",  "proc",     "pstore",  "securityfs", "sysfs",    "tracefs"};
    return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

bool is_kernel_directory(std::string_view path) {
    return std::find(kernel_directories.begin(), kernel_directories.end(), path) != kernel_directories.end();
}

MountMap::Walk kind_of(const Mount& mount) {
    if (mount.type == copper_filesystem_type) {
        return MountMap::Walk::copper_mount;
    }
    return is_kernel_type(mount.type) || is_kernel_directory(mount.point) ? MountMap::Walk::kernel_filesystem
                                                                          : MountMap::Walk::allowed;
}

bool is_fuse(const Mount& mount) {
    return mount.type == "fuse" || mount.type == "fuseblk" || mount.type.starts_with("fuse.");
}

// Of CephFS. Its FUSE client numbers snapshots in the order in which it meets them (client/fuse_ll.cc:
// FINO_STAG), each node in another one.
bool is_in_snapshot(std::string_view path) {
    constexpr std::string_view snapshots = "/.snap";
    return path.ends_with(snapshots) || path.find("/.snap/") != std::string_view::npos;
}

// Most FUSE clients make inode numbers up as names are looked up, each node others (fuse.h of libfuse:
// `use_ino` is not set), so one number can mean two files. Nothing tells whether one does, so only those that
// are known not to are trusted.
bool has_own_numbers(const Mount& mount) {
    static constexpr std::array types = {"fuse.ceph",      "fuse.ceph-fuse", "fuse.daos",
                                         "fuse.dfuse",     "fuse.glusterfs", "fuse.juicefs",
                                         "fuse.pvfs2fuse", "fuse.quobyte"};
    const bool is_known = is_moosefs(mount) || std::ranges::find(types, mount.type) != types.end();
    return !is_fuse(mount) || (is_known && !is_in_snapshot(mount.root));
}

struct Free {
    void operator()(libmnt_table* table) const { ::mnt_unref_table(table); }
    void operator()(libmnt_iter* iterator) const { ::mnt_free_iter(iterator); }
    void operator()(std::FILE* file) const { std::fclose(file); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string text_or_empty(const char* text) {
    return text != nullptr ? text : "";
}

Mount mount_of(libmnt_fs* mount) {
    const dev_t device = ::mnt_fs_get_devno(mount);
    return {.point = text_or_empty(::mnt_fs_get_target(mount)),
            .type = text_or_empty(::mnt_fs_get_fstype(mount)),
            .id = ::mnt_fs_get_id(mount),
            .parent = ::mnt_fs_get_parent_id(mount),
            .device = std::to_string(major(device)) + ":" + std::to_string(minor(device)),
            .options = text_or_empty(::mnt_fs_get_fs_options(mount)),
            .source = text_or_empty(::mnt_fs_get_source(mount)),
            .root = text_or_empty(::mnt_fs_get_root(mount))};
}

std::string read_all(int fd) {
    std::string text;
    std::array<char, 16384> buffer;
    ssize_t got = 0;
    while ((got = retry_eintr([&] { return ::read(fd, buffer.data(), buffer.size()); })) > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return text;
}

// Whether an automounter will mount `path` again when somebody opens it.
bool is_automounted(std::string_view path, const std::vector<Mount>& mounts) {
    const Mount* innermost = nullptr;
    for (const auto& mount : mounts) {
        const bool is_nearer =
            innermost == nullptr || mount.point.size() >= innermost->point.size();  // a later mount is on top
        if (is_within(path, mount.point) && is_nearer) {
            innermost = &mount;
        }
    }
    return innermost != nullptr && innermost->type == "autofs";
}

bool changed_since_last_asked(int mountinfo) {
    pollfd poll{.fd = mountinfo, .events = POLLPRI, .revents = 0};
    return retry_eintr([&] { return ::poll(&poll, 1, 0); }) > 0 && (poll.revents & (POLLPRI | POLLERR)) != 0;
}

// Whether `holds` for "/", "/a" and "/a/b", if `path` is "/a/b". Stops at the first for which it does not.
template <typename Holds>
bool all_on_the_way(std::string_view path, const Holds& holds) {
    bool all = holds(std::string_view("/"));
    for (std::size_t end = 0; all && end + 1 < path.size();) {
        end = std::min(path.find('/', end + 1), path.size());
        all = holds(path.substr(0, end));
    }
    return all;
}

}  // namespace

// libmount only parses here. Without a cache, its table does not touch the filesystems that it lists.
std::vector<Mount> parse_mounts(std::string_view mountinfo) {
    std::string text(mountinfo);
    const Owned<std::FILE> stream(::fmemopen(text.data(), text.size(), "r"));
    const Owned<libmnt_table> table(::mnt_new_table());
    const Owned<libmnt_iter> iterator(::mnt_new_iter(MNT_ITER_FORWARD));
    if (!stream || !table || !iterator ||
        ::mnt_table_parse_stream(table.get(), stream.get(), mountinfo_path) != 0) {
        return {};
    }
    std::vector<Mount> mounts;
    libmnt_fs* next = nullptr;
    while (::mnt_table_next_fs(table.get(), iterator.get(), &next) == 0) {
        if (auto mount = mount_of(next); is_normalised_path(mount.point) && !mount.type.empty()) {
            mounts.push_back(std::move(mount));
        }
    }
    return mounts;
}

bool is_moosefs(const Mount& mount) {
    return mount.type == "fuse" && mount.source.starts_with("mfs#");
}

std::optional<uid_t> user_of(const Mount& mount) {
    std::istringstream words(mount.options);
    for (std::string word; std::getline(words, word, ',');) {
        constexpr std::string_view key = "user_id=";
        uid_t user = 0;
        if (word.starts_with(key) &&
            std::from_chars(word.data() + key.size(), word.data() + word.size(), user).ec == std::errc()) {
            return user;
        }
    }
    return std::nullopt;
}

std::vector<Mount> read_mounts() {
    const UniqueFd mountinfo(::open(mountinfo_path, O_RDONLY | O_CLOEXEC));
    return mountinfo ? parse_mounts(read_all(mountinfo.get())) : std::vector<Mount>();
}

std::string filesystem_root_of(std::string_view path, const std::vector<Mount>& mounts) {
    const auto holding = [&](std::string_view place) {
        const Mount* found = nullptr;
        for (const Mount& mount : mounts) {
            if (is_within(place, mount.point) && (!found || mount.point.size() >= found->point.size())) {
                found = &mount;
            }
        }
        return found;
    };
    const Mount* root = holding(path);
    while (root != nullptr && root->point != "/") {
        const Mount* above = holding(parent_path(root->point));
        if (above == nullptr || above->device != root->device) {
            break;
        }
        root = above;
    }
    return root != nullptr ? root->point : "/";
}

MountMap::MountMap(const std::vector<Mount>& mounts, std::vector<std::string> lost) : lost_(std::move(lost)) {
    std::unordered_set<std::int64_t> ids;
    std::unordered_map<std::string_view, std::string_view> first_points;  // by device
    for (const auto& mount : mounts) {
        ids.insert(mount.id);
        const auto filesystem = first_points.try_emplace(mount.device, mount.point).first->second;
        filesystems_.emplace(mount.id, filesystem);
        if (!has_own_numbers(mount)) {
            numberless_.emplace(filesystem);
        } else if (mount.type.starts_with("fuse.ceph")) {
            numberless_in_snapshots_.emplace(filesystem);
        }
    }
    for (const auto& mount : mounts) {
        const bool is_root = mount.parent == mount.id || ids.count(mount.parent) == 0;
        points_[mount.point].push_back(
            {.id = mount.id, .parent = is_root ? outside : mount.parent, .kind = kind_of(mount)});
    }
    for (const auto directory : kernel_directories) {
        points_.try_emplace(std::string(directory));
    }
    for (const auto& [point, layers] : points_) {
        const auto found = obstacle(point);
        if (found && found->point == point && point != "/") {
            obstacles_[std::string(parent_path(point))].emplace_back(base_name(point), found->kind);
        }
    }
}

std::optional<MountMap::Obstacle> MountMap::obstacle(std::string_view path) const {
    std::int64_t mount = outside;
    std::optional<Obstacle> found;
    all_on_the_way(path, [&](std::string_view prefix) {
        const auto point = points_.find(prefix);
        if (point == points_.end()) {
            return true;
        }
        auto kind = is_kernel_directory(prefix) ? Walk::kernel_filesystem : Walk::allowed;
        // Several mounts can be stacked on one point, each on the one below. So this takes at most as many
        // steps as there are mounts.
        const auto& layers = point->second;
        for (std::size_t step = 0; step < layers.size(); ++step) {
            const auto above = std::find_if(layers.begin(), layers.end(),
                                            [mount](const Layer& layer) { return layer.parent == mount; });
            if (above == layers.end()) {
                break;
            }
            mount = above->id;
            kind = above->kind;
        }
        if (kind != Walk::allowed) {
            found = Obstacle{.kind = kind, .point = std::string(prefix)};
        }
        return !found;
    });
    return found;
}

std::vector<std::pair<std::string, MountMap::Walk>> MountMap::obstacles_in(std::string_view directory) const {
    const auto found = obstacles_.find(directory);
    return found != obstacles_.end() ? found->second : std::vector<std::pair<std::string, Walk>>();
}

bool MountMap::numbers_files(std::string_view path) const {
    const auto filesystem = filesystem_of(path);
    return !numberless_.contains(filesystem) &&
           !(is_in_snapshot(path) && numberless_in_snapshots_.contains(filesystem));
}

std::string MountMap::filesystem_of(std::string_view path) const {
    std::string found = "/";
    all_on_the_way(path, [&](std::string_view prefix) {
        const auto point = points_.find(prefix);
        if (point != points_.end() && !point->second.empty()) {
            found = filesystems_.at(point->second.back().id);
        }
        return true;
    });
    return found;
}

bool MountMap::agrees(const MountMap& other, std::string_view path) const {
    return all_on_the_way(path, [&](std::string_view place) {
        const auto here = points_.find(place);
        const auto there = other.points_.find(place);
        const bool is_point = here != points_.end();
        return is_point == (there != other.points_.end()) && (!is_point || here->second == there->second);
    });
}

bool MountMap::is_lost(std::string_view path) const {
    return std::any_of(lost_.begin(), lost_.end(),
                       [path](const std::string& point) { return is_within(path, point); });
}

bool MountMap::has_lost_in(std::string_view directory) const {
    return std::any_of(lost_.begin(), lost_.end(),
                       [directory](const std::string& point) { return parent_path(point) == directory; });
}

MountTable::MountTable(Trees trees) : trees_(std::move(trees)) {
    auto state = state_.lock();
    state->mountinfo = UniqueFd(::open(mountinfo_path, O_RDONLY | O_CLOEXEC));
    read(*state);
}

void MountTable::read(State& state) const {
    if (state.mountinfo) {
        ::lseek(state.mountinfo.get(), 0, SEEK_SET);
        state.mounts = parse_mounts(read_all(state.mountinfo.get()));
    }
    take(state);
}

// Makes the map from the mounts, and from the remembered mounts that are missing among them.
void MountTable::take(State& state) const {
    std::set<std::string_view> points;
    for (const auto& mount : state.mounts) {
        points.insert(mount.point);
        const bool concerns_trees =
            trees_.contains(mount.point) ||
            std::any_of(trees_.roots().begin(), trees_.roots().end(),
                        [&](const std::string& root) { return is_within(root, mount.point); });
        if (concerns_trees && kind_of(mount) == Walk::allowed && state.remembered.size() < remembered_max) {
            state.remembered.insert(mount.point);
        }
    }
    std::vector<std::string> lost;
    std::copy_if(state.remembered.begin(), state.remembered.end(), std::back_inserter(lost),
                 [&](const std::string& point) {
                     return points.count(point) == 0 && !is_automounted(point, state.mounts);
                 });
    state.map = std::make_shared<const MountMap>(state.mounts, std::move(lost));
}

void MountTable::follow(State& state) const {
    // A table that changes during the read can be half old, half new. The kernel then flags it again.
    constexpr int attempts_max = 8;
    for (int attempt = 0;
         attempt < attempts_max && state.mountinfo && changed_since_last_asked(state.mountinfo.get());
         ++attempt) {
        read(state);
    }
}

std::shared_ptr<const MountMap> MountTable::current() {
    auto state = state_.lock();
    follow(*state);
    return state->map;
}

MountTable::Walk MountTable::walk(std::string_view path) {
    const auto obstacle = current()->obstacle(path);
    return obstacle ? obstacle->kind : Walk::allowed;
}

}  // namespace copper
