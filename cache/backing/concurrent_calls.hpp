// Makes many calls on the names of a directory at once. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "base/guarded.hpp"
#include "base/thread_pool.hpp"
#include "cache/backing/calls.hpp"

namespace copper {

// Thread-safe. Its threads mostly wait for the filesystem, so there are more of them than cores. (TBB's
// scheduler is not made for blocking calls.)
class ConcurrentCalls {
  public:
    // Calls `f` with each index below `count`, in several threads; after the first few, only as long as
    // `go_on` returns true. Returns when all calls have returned. `directory`: an open one, of the filesystem
    // that the calls wait for.
    void for_each(
        int directory, std::size_t count, const std::function<void(std::size_t)>& f,
        const std::function<bool()>& go_on = [] { return true; });

  private:
    // Of a filesystem: one that hangs does not take the threads of the others.
    static constexpr std::size_t threads_of_one_max = 32;
    static constexpr std::size_t threads_max = 512;

    // False if the filesystem has all its threads.
    bool take_thread(std::uint64_t filesystem);
    void give_back_thread(std::uint64_t filesystem);

    Guarded<std::map<std::uint64_t, std::size_t>> taken_;  // threads, by filesystem
    ThreadPool pool_{{.threads_max = threads_max}};        // last: its jobs use the other members
};

}  // namespace copper
