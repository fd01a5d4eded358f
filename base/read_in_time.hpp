// Reads from a pipe, until a deadline.
#pragma once

#include <string>

#include "base/clock.hpp"

namespace copper {

// For poll(2): 0 once the deadline has passed.
int remaining_ms(TimePoint deadline);

// Appends to `text` what comes until the end of the file; false if that has not come by the deadline.
bool read_all(int fd, TimePoint deadline, std::string& text);

}  // namespace copper
