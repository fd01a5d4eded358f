// The daemon logs without waiting for the log's file.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

namespace spdlog {
class logger;
}

namespace copper {

// As long as it lives, a thread of its own writes what spdlog's default logger gets. A log directory that
// hangs then delays neither programs nor other nodes. Lines that find no room are dropped and counted; the
// log tells how many.
//
// Its thread inherits the mask of signals and the cores of the thread that makes it.
class BackgroundLog {
  public:
    struct Options {
        std::size_t lines_waiting_max = 4096;
        std::chrono::milliseconds end_time_max{1000};
    };
    explicit BackgroundLog(Options options);
    BackgroundLog() : BackgroundLog(Options()) {}
    // Writes what waits. If that takes too long, its thread stays, and whoever logs still waits for nothing.
    ~BackgroundLog();
    BackgroundLog(const BackgroundLog&) = delete;
    BackgroundLog& operator=(const BackgroundLog&) = delete;

  private:
    class Sink;

    const Options options_;
    const std::shared_ptr<spdlog::logger> direct_;
    std::shared_ptr<Sink> sink_;
};

}  // namespace copper
