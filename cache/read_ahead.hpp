// How far ahead of a program that reads a file in order its extents are fetched, so that it does not wait for
// the network at each of them.
#pragma once

#include <cstdint>

namespace copper {

// Extents [begin, end); empty if they are equal.
struct ExtentRange {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool operator==(const ExtentRange&) const = default;
};

// Of one file. Like the kernel's (mm/readahead.c): a window that doubles as long as the reads follow each
// other, from the second one on: many programs read no more of a large file than its beginning. Not
// thread-safe.
class ReadAhead {
  public:
    // Extents `read` of a file that has `extents` are read now. Returns what is to be fetched besides:
    // nothing that was returned before, as long as the reads follow each other.
    ExtentRange next(ExtentRange read, std::uint32_t extents, std::uint32_t window_max);

  private:
    bool begun_ = false;
    std::uint32_t fetched_ = 0;  // the end of what was fetched, read or ahead
    std::uint32_t window_ = 0;
};

}  // namespace copper
