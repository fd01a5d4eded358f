// The counted system calls that PosixBacking is made of. Internal to cache/backing*.cpp.
#pragma once

#include <string>

#include "cache/backing_counters.hpp"
#include "cache/object.hpp"
#include "cache/path_opener.hpp"

namespace copper {

// How often what changes while it is read is read.
inline constexpr int read_attempts_max = 3;

// Of `name` in an open directory, never following a link; of the open file itself where `name` is empty.
SystemResult<Attributes> stat_at(int directory, const std::string& name, BackingCounters& counters);

// Of an open file or directory, once a change that another one could follow unseen is old enough to tell them
// apart: it waits at most some 20 ms for that. What changes all the time is not settled even so.
SystemResult<Attributes> settled_stat(int file, BackingCounters& counters);
bool is_settled(const Attributes& attributes);

// As stat_at, with the link's target.
SystemResult<Listing::NewEntry> entry_at(int directory, std::string name, BackingCounters& counters);

// What stands for a Copper mount in a Listing: asking the mount itself could mean asking this daemon.
Listing::NewEntry copper_mount_entry(std::string name, std::uint64_t inode);

}  // namespace copper
