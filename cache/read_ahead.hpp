// Decides how many extents to fetch ahead of a sequential reader, so that the program does not wait for the
// network at each extent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace copper {

// Extents [begin, end); empty if they are equal.
struct ExtentRange {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool operator==(const ExtentRange&) const = default;
};

// For one file, which several programs may read in order, each at another place. Like the kernel's
// (mm/readahead.c): the window starts with the second sequential read and doubles while reads stay
// sequential. The first read fetches nothing ahead, because many programs read only the beginning of a large
// file. Not thread-safe.
class ReadAhead {
  public:
    static constexpr std::size_t streams_max = 8;

    // A program now reads the extents `read` of a file of `extents`. Returns the extents to fetch as well.
    // Never returns an extent twice for reads that stay sequential.
    ExtentRange next(ExtentRange read, std::uint32_t extents, std::uint32_t window_max);

  private:
    struct Stream {
        std::uint32_t fetched = 0;  // the end of what was read or fetched ahead
        std::uint32_t window = 0;

        bool has_next(ExtentRange read) const;
        ExtentRange next(ExtentRange read, std::uint32_t extents, std::uint32_t window_max);
    };
    std::vector<Stream> streams_;  // the latest first
};

}  // namespace copper
