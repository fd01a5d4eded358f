// Makes many calls on the names of a directory at once. Internal to cache/backing/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.hpp"
#include "cache/backing/calls.hpp"

namespace copper {

// Thread-safe. Its threads mostly wait for the filesystem, so there are more of them than cores. (TBB's
// scheduler is not made for blocking calls.) The threads start with the first large directory.
class ConcurrentCalls {
  public:
    // Calls `f` with each index below `count`, in several threads. Returns when all calls have returned.
    void for_each(std::size_t count, const std::function<void(std::size_t)>& f);

  private:
    static constexpr std::size_t threads_max = 32;

    ThreadPool& pool();

    std::once_flag pool_made_;
    std::unique_ptr<ThreadPool> pool_;
};

}  // namespace copper
