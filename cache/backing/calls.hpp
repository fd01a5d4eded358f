// The counted system calls that PosixBacking is made of. Internal to cache/backing/.
#pragma once

#include <chrono>
#include <string>

#include "cache/backing/counters.hpp"
#include "cache/backing/filesystem_clock.hpp"
#include "cache/backing/path_opener.hpp"
#include "cache/object.hpp"

namespace copper {

// How often what changes while it is read is read.
inline constexpr int read_attempts_max = 3;

// Of `name` in an open directory, never following a link; of the open file itself where `name` is empty.
SystemResult<Attributes> stat_at(int directory, const std::string& name, BackingCounters& counters);

// How long one read may wait for files to settle: a reader thread is not to be held for seconds. Longer than
// any Verdict's wait.
inline constexpr std::chrono::milliseconds patience_max{1100};

// Of an open file or directory. If it changed a moment ago, this waits until it must have settled and looks
// again. Takes the wait from `patience`, and all of it if it is not enough. What changes all the time is
// recent even so.
struct Observed {
    Attributes attributes;
    Rest rest = Rest::recent;
};
SystemResult<Observed> settled_stat(int file, FilesystemClocks& clocks, std::chrono::milliseconds& patience,
                                    BackingCounters& counters);

// As stat_at, with the link's target.
SystemResult<Listing::NewEntry> entry_at(int directory, std::string name, FilesystemClocks& clocks,
                                         BackingCounters& counters);

// What stands for a Copper mount in a Listing: asking the mount itself could mean asking this daemon.
Listing::NewEntry copper_mount_entry(std::string name, std::uint64_t inode);

}  // namespace copper
