// Fetches Listings ahead of a program that walks a tree of directories.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/cache.hpp"

namespace copper {

// A program that lists directory after directory and reads no file (find, ls -R, du) is walking a tree. Walk
// fetches the Listings of the next directories ahead, so that the program does not wait for the network in
// each. Where the filesystem answers at once, their attributes are fetched too: the kernel asks for those
// with the first names. An import reads files in between, and Walk must not make the reader list directories
// that it does not need.
//
// A window limits how many Listings are fetched and not used yet. Each used Listing adds one to the window,
// so the window doubles when a program has used all of it. It closes when a program lists a directory that no
// earlier Listing has led to. So Walk wastes at most about as many Listings as were used before.
//
// Thread-safe. Programs that walk at the same time share the window.
class Walk {
  public:
    static constexpr std::uint32_t noticed_after = 8;  // directories
    static constexpr std::size_t window_min = 8;
    static constexpr std::size_t window_max = 512;

    // `cache` must outlive all fetches that this object starts.
    explicit Walk(Cache& cache);
    ~Walk();

    // A program begins to list `directory`, and this is its object.
    void listed(const std::string& directory, const ObjectPtr& object);
    // A program reads a file.
    void file_read();

  private:
    struct State;
    const std::shared_ptr<State> state_;  // shared with those that wait for Listings
};

}  // namespace copper
