#include "base/read_in_time.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>

#include "base/unique_fd.hpp"

namespace copper {

int remaining_ms(TimePoint deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    return left <= 0 ? 0 : static_cast<int>(std::min<std::int64_t>(left, INT_MAX));
}

bool read_all(int fd, TimePoint deadline, std::string& text) {
    std::array<char, 4096> buffer{};
    for (;;) {
        pollfd waiting{fd, POLLIN, 0};
        if (retry_eintr([&] { return ::poll(&waiting, 1, remaining_ms(deadline)); }) <= 0) {
            return false;
        }
        const auto count = retry_eintr([&] { return ::read(fd, buffer.data(), buffer.size()); });
        if (count <= 0) {
            return true;
        }
        text.append(buffer.data(), static_cast<std::size_t>(count));
    }
}

}  // namespace copper
