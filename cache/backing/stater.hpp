// Many calls on a directory's names at once. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/reader_pool.hpp"
#include "cache/backing/calls.hpp"

namespace copper {

// A name as readdir(3) gives it.
struct DirectoryName {
    std::string text;
    std::uint64_t inode = 0;
    std::uint32_t type = 0;  // of `mode`; 0 if the filesystem does not say
    bool is_copper_mount = false;
};

// Thread-safe. The threads wait for the filesystem far more than they compute, so there are more of them than
// cores; that, and calls that block, is what TBB's scheduler is not made for. They start with the first large
// directory.
class Stater {
  public:
    // `clocks` must outlive this.
    explicit Stater(FilesystemClocks& clocks) : clocks_(clocks) {}

    // The entry of each name, or why there is none, in the order of `names`.
    std::vector<SystemResult<Listing::NewEntry>> stat(int directory, const std::vector<DirectoryName>& names,
                                                      BackingCounters& counters);

    // Calls `f` with each index below `count`, in several threads, and returns when it has been called with
    // all.
    void for_each(std::size_t count, const std::function<void(std::size_t)>& f);

  private:
    static constexpr std::size_t threads_max = 32;

    ReaderPool& pool();

    FilesystemClocks& clocks_;
    std::once_flag pool_made_;
    std::unique_ptr<ReaderPool> pool_;
};

}  // namespace copper
