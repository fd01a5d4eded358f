// Has the kernel keep bytes of files before programs ask for them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/unique_fd.hpp"

namespace copper {

// A process that has the kernel read files of the mirror (readahead(2)): who serves the mirror must not wait
// for it. The daemon answers it out of the cache, or not at all, and does not take it for a program
// (Operations::By). It ends with this object, or with the process that made it.
//
// Not thread-safe.
class PageFiller {
  public:
    // Without a process: fills nothing.
    PageFiller() = default;
    // The same if no process can be started. REQUIRES: no other thread yet.
    static PageFiller start();

    // 0: there is none.
    pid_t process() const { return process_; }
    // `path` lies in the mirror. Does not wait: if the process is busy, it misses this.
    void fill(const std::string& path, std::uint64_t offset, std::uint64_t bytes);
    // Ends the process, so that it does not keep the mirror busy. Waits for that, but not for long.
    void end();

  private:
    UniqueFd requests_;
    pid_t process_ = 0;
};

}  // namespace copper
