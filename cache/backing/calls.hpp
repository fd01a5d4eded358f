// The system calls of PosixBacking, with their counters. Internal to cache/backing/, but for stat_at().
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cache/backing/counters.hpp"
#include "cache/backing/filesystem_clock.hpp"
#include "cache/backing/path_opener.hpp"
#include "cache/object.hpp"

namespace copper {

// How often to read a file or directory that changes during each read.
inline constexpr int read_attempts_max = 3;

// `server`: not the attributes that the filesystem's client may have kept (AT_STATX_FORCE_SYNC of statx(2)).
enum class Ask : std::uint8_t { client, server };

// For `name` in an open directory, without following a link. If `name` is empty, for the open file itself.
SystemResult<Attributes> stat_at(int directory, const std::string& name, ReadCounters& counters,
                                 Ask whom = Ask::client);

// Of an open file, as a new opening has them. Clients promise that an opening sees what others closed before
// (close-to-open consistency, nfs(5)); until then they may answer with attributes that they keep.
SystemResult<Attributes> stat_anew(int file, ReadCounters& counters);

// The target of a symbolic link. EINVAL: it is none.
SystemResult<std::string> readlink_at(int directory, const std::string& name, ReadCounters& counters);

// How long one read may wait for files to settle. A reader thread must not wait for seconds. Longer than the
// longest time_to_settle().
inline constexpr std::chrono::milliseconds patience_max{1300};

// Attributes of an open file or directory. If it changed a moment ago, waits until it must have settled and
// looks again. Subtracts the wait from `patience`; if that is too short, uses it up and does not wait.
// Something that keeps changing does not settle.
struct Observed {
    Attributes attributes;
    bool is_settled = false;
    bool may_be_stale = false;  // FilesystemClocks::may_be_stale()
};
SystemResult<Observed> settled_stat(int file, FilesystemClocks& clocks, std::chrono::milliseconds& patience,
                                    ReadCounters& counters, Ask whom = Ask::client);

struct ParentDirectory {
    int fd = -1;
    std::uint64_t filesystem = 0;  // st_dev
    std::uint64_t inode = 0;
};
// The kernel knows the filesystem: this is no operation.
SystemResult<ParentDirectory> parent_directory(int fd);

// Like stat_at, with the target if it is a link. A file that changed a moment ago may be in the middle of a
// change: `wait` looks again when it must have settled, if that is soon or the file is empty.
struct ObservedEntry {
    Listing::NewEntry entry;
    bool is_settled = true;
};
enum class IfUnsettled : std::uint8_t { take, wait };
SystemResult<ObservedEntry> entry_at(const ParentDirectory& directory, std::string name,
                                     FilesystemClocks& clocks, IfUnsettled if_unsettled,
                                     ReadCounters& counters);

// An inode number for a file of a filesystem whose own numbers are not the same on all nodes (sshfs). Then
// hard links are different files.
std::uint64_t number_of(const std::string& path);
// `inode`, which the filesystem tells of `path`, or that number instead.
std::uint64_t number_of(const std::string& path, const PathOpener::Opened& opened, std::uint64_t inode);

// The entry of a Copper mount in a Listing. Made up, because a stat of the mount could be a request to this
// daemon.
Listing::NewEntry copper_mount_entry(std::string name, std::uint64_t inode);

}  // namespace copper
