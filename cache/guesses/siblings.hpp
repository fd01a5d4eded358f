// Guesses that files beside those that a program uses are used next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "cache/guesses/ahead.hpp"

namespace copper {

// A program that uses a file of a directory often uses others of them, one after the other. So others with
// the same suffix are fetched at the same time: their attributes if the file was looked up, and their bytes
// if it was read. (Not of libraries and of the source of modules: their neighbours are rarely used.)
//
// A file that others foresaw, and this guesser did not, tells nothing: they foresee its neighbours, too.
//
// Files that were fetched and not used yet stay within a window. Each file that is used widens it. So where
// programs use few files of a directory, few are fetched in vain.
//
// Thread-safe.
class Siblings {
  public:
    enum class Use : std::uint8_t { looked_up, read };

    static constexpr std::size_t window_min = 16;
    static constexpr std::size_t window_max = 128;
    static constexpr std::size_t window_growth = 4;      // for each file used
    static constexpr std::size_t names_max = 1U << 16U;  // of all directories; then evidence begins anew

    Siblings(std::shared_ptr<Ahead> ahead, GuessCounters& counters)
        : ahead_(std::move(ahead)), counters_(counters) {}

    // A program uses a file. Returns whether this guesser fetched it.
    bool used(const std::string& path, Use use, Foresight foresight);

  private:
    // Files of one directory with one suffix.
    struct Group {
        std::set<std::string> left;   // neither fetched nor used
        std::set<std::string> ahead;  // fetched, and not used yet
        std::size_t window = window_min;
    };
    using GroupKey = std::tuple<std::string, std::string, Use>;  // directory, suffix
    struct Groups {
        std::map<GroupKey, Group> by_key;
        std::size_t names = 0;  // of all groups when they were made
    };

    static Group group_of(const Directory& directory, std::string_view suffix);

    const std::shared_ptr<Ahead> ahead_;
    GuessCounters& counters_;
    Guarded<Groups> groups_;
};

}  // namespace copper
