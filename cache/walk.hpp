// Fetching ahead of a program that goes through a tree of directories.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/cache.hpp"

namespace copper {

// A program that lists directory after directory and reads no file (find, ls -R, du) is going through a tree.
// The Listings of the directories that it comes to next are fetched ahead of it, so that it does not wait for
// the network in each. An import reads files in between, and must not make the reader list what it does not
// need.
//
// What was fetched and was not listed yet is counted, and stays within a window. The window grows by one for
// each Listing that is used: it doubles when all of it has been used. It closes when a program lists a
// directory that none before it has led to. So no more is fetched in vain than was used before, and a few.
//
// Thread-safe. Programs that walk at the same time share the window.
class Walk {
  public:
    static constexpr std::uint32_t noticed_after = 8;  // directories
    static constexpr std::size_t window_min = 8;
    static constexpr std::size_t window_max = 512;

    // `cache` must outlive what this asks of it.
    explicit Walk(Cache& cache);
    ~Walk();

    // A program begins to list `directory`, and this is its object.
    void listed(const std::string& directory, const ObjectPtr& object);
    // A program reads a file.
    void file_read();

  private:
    struct State;
    const std::shared_ptr<State> state_;  // also of those that wait for Listings
};

}  // namespace copper
