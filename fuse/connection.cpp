#include "fuse/connection.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error_text.hpp"
#include "base/fuse_access.hpp"

namespace copper {
namespace {

// libfuse reports why something failed only to its log, and there is one log per process.
Guarded<std::string>& last_message() {
    static Guarded<std::string> message;
    return message;
}

void keep_message(fuse_log_level level, const char* format, va_list arguments) {
    if (level > FUSE_LOG_WARNING) {
        return;
    }
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    std::string line(text);
    line.erase(line.find_last_not_of('\n') + 1);
    *last_message().lock() = line;
}

// The thread can be cancelled only while this object lives.
class Cancellable {
  public:
    Cancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr); }
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;
    ~Cancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
};

std::string mount_options(const SessionOptions& options) {
    std::string text = "ro,nosuid,nodev,default_permissions,fsname=copper,subtype=copper";
    if (options.audience == Audience::everyone) {
        text += ",allow_other";
    }
    return text;
}

fuse_session* new_session(const SessionOptions& options, Served& served) {
    fuse_set_log_func(keep_message);
    fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
    const fuse_lowlevel_ops table = dispatch_table();
    fuse_session* session = nullptr;
    if (fuse_opt_add_arg(&arguments, "copper") == 0 && fuse_opt_add_arg(&arguments, "-o") == 0 &&
        fuse_opt_add_arg(&arguments, mount_options(options).c_str()) == 0) {
        session = fuse_session_new(&arguments, &table, sizeof(table), &served);
    }
    fuse_opt_free_args(&arguments);
    return session;
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 14)
// INIT is the first request, and the kernel sends no other before it has the answer.
std::atomic<bool>& next_answer_is_inits() {
    static std::atomic<bool> is_next = false;
    return is_next;
}

ssize_t write_answer(int device, iovec* parts, int count, void*) {
    if (next_answer_is_inits().exchange(false) && count == 2) {
        fuse_init_out answer{};
        const std::size_t bytes = std::min(parts[1].iov_len, sizeof answer);
        std::memcpy(&answer, parts[1].iov_base, bytes);
        answer.flags |= FUSE_PARALLEL_DIROPS;
        std::memcpy(parts[1].iov_base, &answer, bytes);
    }
    return ::writev(device, parts, count);
}

ssize_t read_request(int device, void* buffer, std::size_t bytes_max, void*) {
    return ::read(device, buffer, bytes_max);
}

// libfuse does not tell the kernel that it may look up several names of a directory at the same time (seen
// with 3.14), so the kernel would send one lookup after the other, and each waits for the filesystem. So the
// answer to INIT is completed on its way.
void allow_parallel_lookups(fuse_session* session) {
    fuse_custom_io io{};  // newer versions of libfuse have more members
    io.writev = write_answer;
    io.read = read_request;
    if (fuse_session_custom_io(session, &io, fuse_session_fd(session)) == 0) {
        next_answer_is_inits() = true;
    }
}
#else
void allow_parallel_lookups(fuse_session*) {}
#endif

}  // namespace

Connection::Connection(const SessionOptions& options, Served& served)
    : mount_point_(options.mount_point), session_(new_session(options, served)) {}

std::optional<std::string> Connection::mount() {
    if (session_ == nullptr) {
        return "libfuse refused the session: " + *last_message().lock();
    }
    last_message().lock()->clear();
    if (fuse_session_mount(session_.get(), mount_point_.c_str()) != 0) {
        std::string message = *last_message().lock();
        if (message.empty()) {
            message = std::string(fuse_helper) + " refused (its reason is on stderr)";
        }
        return "cannot mount at " + mount_point_ + ": " + message;
    }
    is_mounted_ = true;
    allow_parallel_lookups(session_.get());
    return std::nullopt;
}

// libfuse serves an open descriptor. It answers INIT to /dev/null, and then the descriptor becomes the
// device.
std::optional<std::string> Connection::adopt(const UniqueFd& device, const std::function<void()>& tell_init) {
    UniqueFd descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const std::string name = "/dev/fd/" + std::to_string(descriptor.get());
    if (session_ == nullptr || fuse_session_mount(session_.get(), name.c_str()) != 0) {
        return "libfuse cannot go on with " + mount_point_ + ": " + *last_message().lock();
    }
    const int served = descriptor.release();
    is_mounted_ = true;
    tell_init();
    if (::dup3(device.get(), served, O_CLOEXEC) < 0) {
        return "cannot go on with " + mount_point_ + ": " + error_text();
    }
    return std::nullopt;
}

UniqueFd Connection::device() const {
    return UniqueFd(::fcntl(fuse_session_fd(session_.get()), F_DUPFD_CLOEXEC, 0));
}

std::optional<std::size_t> Connection::take(std::span<std::byte> slot, std::span<std::byte> rest) {
    const iovec places[] = {{slot.data(), slot.size()}, {rest.data(), rest.size()}};
    ssize_t got = 0;
    int error = 0;
    {
        const Cancellable while_waiting;
        got = ::readv(fuse_session_fd(session_.get()), places, 2);
        error = errno;
    }
    if (got > 0) {
        return static_cast<std::size_t>(got);
    }
    // ENOENT: the request was interrupted before it arrived. ENODEV: unmounted.
    const bool is_interrupted = got < 0 && (error == EINTR || error == EAGAIN || error == ENOENT);
    return is_interrupted ? std::optional<std::size_t>(0) : std::nullopt;
}

void Connection::process(std::span<std::byte> request) {
    fuse_buf buffer{};
    buffer.mem = request.data();
    buffer.size = request.size();
    fuse_session_process_buf(session_.get(), &buffer);
}

// If the detached mount is still in use, fuse_session_unmount() would unmount by path again, whatever is
// mounted there now. It does not if polling the device gives an error, like a pipe that nobody reads does.
void Connection::disconnect() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
        ::close(ends[0]);
        ::dup3(ends[1], fuse_session_fd(session_.get()), O_CLOEXEC);
        ::close(ends[1]);
    }
    fuse_session_unmount(session_.get());
}

}  // namespace copper
