// Directories as a reader makes them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cache/object.hpp"

namespace copper::test {

// How long one operation takes on a filesystem that answers at once, and on one that does not (see
// cache/batch_evidence.hpp).
inline constexpr std::chrono::microseconds at_once{0};
inline constexpr std::chrono::microseconds slowly{1000};

// Of these entries. REQUIRES: at most piece_entries.
inline Directory directory_of(std::vector<Listing::NewEntry> entries, std::uint64_t version = 1,
                              std::chrono::microseconds operation_time = at_once) {
    Directory directory;
    directory.version = version;
    directory.entries = entries.size();
    directory.names = Listing(std::move(entries), Listing::Detail::names_only);
    if (directory.entries > 0) {
        directory.first_names.emplace_back(directory.names.at(0).name);
    }
    directory.operation_time = operation_time;
    return directory;
}

}  // namespace copper::test
