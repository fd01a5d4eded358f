#include "cache/backing/calls.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/path.hpp"
#include "base/unique_fd.hpp"

namespace copper {
namespace {

using std::chrono::milliseconds;

Timestamp timestamp_of(const struct statx_timestamp& time) {
    return {.seconds = time.tv_sec, .nanoseconds = time.tv_nsec};
}

Attributes attributes_of(const struct statx& status) {
    return {.inode = status.stx_ino,
            .size = status.stx_size,
            .blocks = status.stx_blocks,
            .device = ::makedev(status.stx_rdev_major, status.stx_rdev_minor),
            .mode = status.stx_mode,
            .links = status.stx_nlink,
            .user = status.stx_uid,
            .group = status.stx_gid,
            .block_bytes = status.stx_blksize,
            .accessed = timestamp_of(status.stx_atime),
            .modified = timestamp_of(status.stx_mtime),
            .changed = timestamp_of(status.stx_ctime)};
}

// For one file's attributes. (With stamps of whole seconds, `ls -l` of a directory of logs would take a
// second per name.)
constexpr milliseconds short_wait{25};

struct Status {
    Attributes attributes;
    std::uint64_t filesystem = 0;
    bool is_automount_point = false;  // of a filesystem that will be mounted when it is used
};

SystemResult<Status> status_at(int directory, const std::string& name, ReadCounters& counters,
                               Ask whom = Ask::client) {
    const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name.empty() ? AT_EMPTY_PATH : 0) |
                      (whom == Ask::server ? AT_STATX_FORCE_SYNC : 0);
    struct statx status {};
    counters.count(&BackingCounters::stats);
    if (retry_eintr([&] { return ::statx(directory, name.c_str(), flags, STATX_BASIC_STATS, &status); }) !=
        0) {
        return tl::unexpected(errno);
    }
    return Status{.attributes = attributes_of(status),
                  .filesystem = ::makedev(status.stx_dev_major, status.stx_dev_minor),
                  .is_automount_point = (status.stx_attributes & STATX_ATTR_AUTOMOUNT) != 0};
}

// Whether this node's clock stamps the changes on the filesystem of `file`.
bool is_local(int file) {
    constexpr std::uint32_t xfs = 0x58465342;  // older systems lack it in <linux/magic.h>
    static constexpr std::array<std::uint32_t, 8> types = {
        EXT4_SUPER_MAGIC, xfs,         BTRFS_SUPER_MAGIC,     F2FS_SUPER_MAGIC,
        TMPFS_MAGIC,      RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC, AUTOFS_SUPER_MAGIC};
    struct statfs filesystem {};
    return retry_eintr([&] { return ::fstatfs(file, &filesystem); }) == 0 &&
           std::find(types.begin(), types.end(), static_cast<std::uint32_t>(filesystem.f_type)) !=
               types.end();
}

UniqueFd file_at(int directory, const std::string& name) {
    return UniqueFd(::openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
}

bool is_local_file(int directory, const std::string& name) {
    const UniqueFd file = file_at(directory, name);
    return file && is_local(file.get());
}

// Of a name that was a file; nothing if it is none any more, or cannot be opened.
std::optional<Attributes> attributes_anew(int directory, const std::string& name, ReadCounters& counters) {
    const UniqueFd file = file_at(directory, name);
    const auto now = file ? stat_anew(file.get(), counters) : tl::unexpected(errno);
    return now && S_ISREG(now->mode) ? std::optional(*now) : std::nullopt;
}

}  // namespace

SystemResult<std::string> readlink_at(int directory, const std::string& name, ReadCounters& counters) {
    std::array<char, path_bytes_max> buffer;
    counters.count(&BackingCounters::readlinks);
    const auto bytes =
        retry_eintr([&] { return ::readlinkat(directory, name.c_str(), buffer.data(), buffer.size()); });
    if (bytes < 0) {
        return tl::unexpected(errno);
    }
    return std::string(buffer.data(), static_cast<std::size_t>(bytes));
}

SystemResult<Attributes> stat_at(int directory, const std::string& name, ReadCounters& counters, Ask whom) {
    return status_at(directory, name, counters, whom).map([](const Status& status) {
        return status.attributes;
    });
}

SystemResult<Attributes> stat_anew(int file, ReadCounters& counters) {
    counters.count(&BackingCounters::file_opens);
    const UniqueFd anew(
        ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!anew) {
        return tl::unexpected(errno);
    }
    return status_at(anew.get(), "", counters, Ask::server).map([](const Status& status) {
        return status.attributes;
    });
}

SystemResult<Observed> settled_stat(int file, FilesystemClocks& clocks, milliseconds& patience,
                                    ReadCounters& counters, Ask whom) {
    const auto look = [&]() -> SystemResult<std::pair<Observed, milliseconds>> {
        return status_at(file, "", counters, whom).map([&](const Status& status) {
            const auto wait = clocks.time_to_settle(status.filesystem, status.attributes.changed,
                                                    [file] { return is_local(file); });
            return std::pair(
                Observed{.attributes = status.attributes,
                         .is_settled = wait == milliseconds(0),
                         .may_be_stale = clocks.may_be_stale(status.filesystem, status.attributes.changed)},
                wait);
        });
    };
    auto found = look();
    if (found && !found->first.is_settled) {
        const milliseconds wait = found->second;
        if (wait <= patience) {
            patience -= wait;
            std::this_thread::sleep_for(wait);
            found = look();
        } else {
            patience = milliseconds(0);
        }
    }
    return found.map([](const auto& seen) { return seen.first; });
}

SystemResult<ParentDirectory> parent_directory(int fd) {
    struct statx status {};
    if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &status) != 0) {
        return tl::unexpected(errno);
    }
    return ParentDirectory{.fd = fd,
                           .filesystem = ::makedev(status.stx_dev_major, status.stx_dev_minor),
                           .inode = status.stx_ino};
}

SystemResult<ObservedEntry> entry_at(const ParentDirectory& directory, std::string name,
                                     FilesystemClocks& clocks, IfUnsettled if_unsettled,
                                     ReadCounters& counters) {
    int error = ENOENT;
    for (int attempt = 0; attempt < read_attempts_max; ++attempt) {
        const auto status =
            counters.pace().look_up(directory.inode, [&] { return status_at(directory.fd, name, counters); });
        if (!status) {
            return tl::unexpected(status.error());
        }
        Attributes attributes = status->attributes;
        const bool begins_filesystem =
            status->filesystem != directory.filesystem || status->is_automount_point;
        if (S_ISREG(attributes.mode)) {
            const auto time_to_settle = [&] {
                return clocks.time_to_settle(status->filesystem, attributes.changed, [&] {
                    return begins_filesystem ? is_local_file(directory.fd, name) : is_local(directory.fd);
                });
            };
            auto left = time_to_settle();
            // Of other files, a read finds out if the client keeps old attributes.
            if (attributes.size == 0 && left.count() == 0 &&
                clocks.may_be_stale(status->filesystem, attributes.changed)) {
                attributes = attributes_anew(directory.fd, name, counters).value_or(attributes);
                left = time_to_settle();
            }
            // An empty file is read without asking anybody, so look at it once more.
            const int waits_max = attributes.size == 0 ? read_attempts_max - 1 : left <= short_wait ? 1 : 0;
            if (left.count() == 0 || if_unsettled == IfUnsettled::take || attempt >= waits_max) {
                return ObservedEntry{.entry = {.name = std::move(name),
                                               .target = {},
                                               .attributes = attributes,
                                               .begins_filesystem = begins_filesystem},
                                     .is_settled = left.count() == 0};
            }
            std::this_thread::sleep_for(left);
            continue;
        }
        clocks.note(status->filesystem, attributes.changed);
        auto target = S_ISLNK(attributes.mode) ? readlink_at(directory.fd, name, counters)
                                               : SystemResult<std::string>();
        if (!target && target.error() == EPERM) {
            target = std::string();  // sshfs shows some links, but not where they lead
        }
        if (target) {
            return ObservedEntry{.entry = {.name = std::move(name),
                                           .target = std::move(*target),
                                           .attributes = attributes,
                                           .begins_filesystem = begins_filesystem}};
        }
        error = target.error();
        if (error != EINVAL) {  // EINVAL: no longer a link
            break;
        }
    }
    return tl::unexpected(error);
}

// 53 bits, as in fuse/number_space.hpp.
std::uint64_t number_of(const std::string& path) {
    constexpr std::uint64_t bits = (std::uint64_t{1} << 53) - 1;
    return std::max<std::uint64_t>(hash_of(ObjectKey{.kind = ObjectKind::entry, .path = path}) & bits, 2);
}

std::uint64_t number_of(const std::string& path, const PathOpener::Opened& opened, std::uint64_t inode) {
    return opened.mounts->numbers_files(opened.path) ? inode : number_of(path);
}

Listing::NewEntry copper_mount_entry(std::string name, std::uint64_t inode) {
    return {.name = std::move(name),
            .target = {},
            .attributes = {.inode = inode, .mode = S_IFDIR | 0555U, .links = 2},
            .begins_filesystem = true};
}

}  // namespace copper
