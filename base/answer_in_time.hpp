// Asks what a filesystem may never answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace copper {

// Runs `run` in a process of its own, of which nobody knows the end and which holds no standard streams: one
// that waits for a hung filesystem cannot even be killed (FUSE: while the server has taken its request).
// False if no process can be started. REQUIRES: `run` does not need the caller's other threads.
bool run_detached(const std::function<void()>& run);

// flock(2) with LOCK_EX, but not for longer than `patience`: false. The lock belongs to the open file.
bool lock_in_time(int fd, std::chrono::milliseconds patience);

// What `ask` returns, or nothing if that takes longer than `patience`: then its process ends, if it can. It
// runs detached. nothing: without the open files of this process, which somebody may wait to see closed when
// this process is lost.
enum class Holds : std::uint8_t { open_files, nothing };
std::optional<std::string> answer_in_time(std::chrono::milliseconds patience,
                                          const std::function<std::string()>& ask,
                                          Holds holds = Holds::open_files);

}  // namespace copper
