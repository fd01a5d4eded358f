// The connection of a mirror with the kernel: libfuse's session and the device.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/unique_fd.hpp"
#include "fuse/dispatch.hpp"

namespace copper {

// Call all methods except mount() and adopt() from any thread.
class Connection {
  public:
    // `served` must outlive this object.
    Connection(const SessionOptions& options, Served& served);

    // Call one of these two, once. Errors say what is wrong.
    std::optional<std::string> mount();
    // Takes over another process's `device`. libfuse must get the connection's first request again, but the
    // kernel must not get the answer again: tell_init() runs before the device is in place.
    std::optional<std::string> adopt(const UniqueFd& device, const std::function<void()>& tell_init);
    bool is_mounted() const { return is_mounted_; }

    // Another descriptor of the device.
    UniqueFd device() const;
    fuse_session* session() const { return session_.get(); }

    // Waits for a request. Stores its first bytes in `slot` and the rest in `rest`. Returns the number of
    // bytes; 0 if a request was interrupted before it arrived; nothing if the mount has ended. The thread can
    // be cancelled here, and only here.
    std::optional<std::size_t> take(std::span<std::byte> slot, std::span<std::byte> rest);
    void process(std::span<std::byte> request);

    // Take no more requests.
    void exit() { fuse_session_exit(session_.get()); }
    bool has_exited() const { return fuse_session_exited(session_.get()) != 0; }

    void disconnect();
    // Never destroys the session: the connection ends with the process.
    void abandon() { static_cast<void>(session_.release()); }

  private:
    struct Deleter {
        void operator()(fuse_session* session) const { fuse_session_destroy(session); }
    };

    const std::string mount_point_;
    std::unique_ptr<fuse_session, Deleter> session_;
    bool is_mounted_ = false;  // constant after mount() or adopt()
};

}  // namespace copper
