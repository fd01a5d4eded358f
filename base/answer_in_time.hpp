// Asks what a filesystem may never answer.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace copper {

// What `ask` returns, or nothing if that takes longer than `patience`. It runs in a process of its own: one
// that waits for a hung filesystem cannot even be killed (FUSE: while the server has taken its request), so
// this one does not wait for its end. REQUIRES: `ask` does not need the caller's other threads.
std::optional<std::string> answer_in_time(std::chrono::milliseconds patience,
                                          const std::function<std::string()>& ask);

}  // namespace copper
