// An owned file descriptor, and calls that a signal interrupts.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace copper {

class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~UniqueFd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    void reset() {
        if (fd_ >= 0) {
            ::close(release());
        }
    }

  private:
    int fd_ = -1;
};

// Repeats `f` while it fails with EINTR.
template <typename F>
auto retry_eintr(F f) {
    auto result = f();
    while (result == -1 && errno == EINTR) {
        result = f();
    }
    return result;
}

}  // namespace copper
