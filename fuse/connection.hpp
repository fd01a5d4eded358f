// The kernel's end of a mirror: libfuse's session and the device.
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

// All methods but mount() and adopt() may be called from any thread.
class Connection {
  public:
    // `served` must outlive it.
    Connection(const SessionOptions& options, Served& served);

    // Either of them, once. The error says what is wrong.
    std::optional<std::string> mount();
    // Goes on with another process's `device`. libfuse has to be told the connection's first request again,
    // but the kernel must not hear the answer again: tell_init() runs before the device is in its place.
    std::optional<std::string> adopt(const UniqueFd& device, const std::function<void()>& tell_init);
    bool is_mounted() const { return is_mounted_; }

    // Another descriptor of the device.
    UniqueFd device() const;
    fuse_session* session() const { return session_.get(); }

    // Waits for a request. Its first bytes go to `slot`, what does not fit there to `rest`. Returns how many
    // they are; 0: one was interrupted before it came here; nothing: the mount has ended. The thread can be
    // cancelled here, and only here.
    std::optional<std::size_t> take(std::span<std::byte> slot, std::span<std::byte> rest);
    void process(std::span<std::byte> request);

    // No more requests shall be taken.
    void exit() { fuse_session_exit(session_.get()); }
    bool has_exited() const { return fuse_session_exited(session_.get()) != 0; }

    void disconnect();
    // Never to be destroyed; the connection ends with the process.
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
