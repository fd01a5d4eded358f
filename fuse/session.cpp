#include "fuse/session.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "cache/path.hpp"
#include "cache/reader_pool.hpp"
#include "fuse/dispatch.hpp"
#include "fuse/kernel_passthrough.hpp"
#include "fuse/mount_point.hpp"

namespace copper {
namespace {

// libfuse says why something failed only to its log, which is one for the whole process.
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

struct SessionDeleter {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
};
using SessionHandle = std::unique_ptr<fuse_session, SessionDeleter>;

// The memory that libfuse allocates for the first request it receives, and uses again.
struct RequestBuffer {
    RequestBuffer() = default;
    RequestBuffer(const RequestBuffer&) = delete;
    RequestBuffer& operator=(const RequestBuffer&) = delete;
    ~RequestBuffer() { std::free(buffer.mem); }

    fuse_buf buffer{};
};

// A thread can be cancelled while this lives, and only then.
class Cancellable {
  public:
    Cancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr); }
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;
    ~Cancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
};

// For the kernel to drop the last names that it was told to drop, when the session ends.
constexpr std::chrono::seconds notice_time_max{2};

std::string mount_options(const SessionOptions& options) {
    std::string text = "ro,nosuid,nodev,default_permissions,fsname=copper,subtype=copper";
    if (options.audience == Audience::everyone) {
        text += ",allow_other";
    }
    return text;
}

SessionHandle new_session(const SessionOptions& options, Served& served) {
    fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
    const fuse_lowlevel_ops table = dispatch_table();
    SessionHandle session;
    if (fuse_opt_add_arg(&arguments, "copper") == 0 && fuse_opt_add_arg(&arguments, "-o") == 0 &&
        fuse_opt_add_arg(&arguments, mount_options(options).c_str()) == 0) {
        session.reset(fuse_session_new(&arguments, &table, sizeof(table), &served));
    }
    fuse_opt_free_args(&arguments);
    return session;
}

// Requests are taken by threads of our own rather than by fuse_session_loop_mt: that one ends only when the
// kernel ends the connection, which it does not as long as a detached mount is in use. The threads wait in
// read(2), which wakes one of them for one request at half the latency of poll and read; to end, they are
// cancelled there, as fuse_session_loop_mt does it.
class KernelSession final : public Session {
  public:
    KernelSession(SessionOptions options, Cache& cache, FuseCounters& counters)
        : mount_point_(options.mount_point),
          threads_max_(std::max<std::size_t>(options.threads_max, 1)),
          cache_(cache),
          counters_(counters),
          pending_(std::make_shared<PendingReplies>()),
          operations_(options, cache, counters,
                      {.attributes = [this](NodeId node) { invalidate_attributes(node); },
                       .name = [this](NodeId parent, const std::string& name,
                                      std::function<void()> then) { forget_name(parent, name, then); }}),
          served_{.operations = operations_, .pending = *pending_, .passthrough = options.passthrough},
          session_(new_session(options, served_)) {}

    ~KernelSession() override {
        stop();
        pending_->close();
        if (end_notifier() && mounted_) {
            disconnect();
        }
    }

    std::optional<std::string> mount();
    void serve() override;
    void stop() override;
    bool passes_through() const override { return passes_through_; }
    void forget(std::string_view path) override;

  private:
    void invalidate_attributes(NodeId node) {
        // A negative offset: attributes only, so that no page's lock is waited for.
        fuse_lowlevel_notify_inval_inode(session_.get(), node, -1, 0);
    }
    void forget_name(NodeId parent, const std::string& name, const std::function<void()>& then);
    bool end_notifier();
    int take_request(RequestBuffer& request);
    void begin_passthrough();
    void take_requests();
    void end_serving();
    void disconnect();

    const std::string mount_point_;
    const std::size_t threads_max_;
    Cache& cache_;
    FuseCounters& counters_;
    const std::shared_ptr<PendingReplies> pending_;
    Operations operations_;
    Served served_;
    SessionHandle session_;
    bool mounted_ = false;  // constant after mount()
    std::atomic<bool> unmounted_ = false;
    std::atomic<bool> passes_through_ = false;
    Guarded<bool> ended_{false};
    std::condition_variable end_;
    // Its one thread waits for the kernel where nobody else may: the kernel drops a name when no lookup in
    // the directory is under way.
    std::unique_ptr<ReaderPool> notifier_ =
        std::make_unique<ReaderPool>(ReaderPool::Options{.threads = 1, .queued_max = 1024});
};

std::optional<std::string> KernelSession::mount() {
    if (session_ == nullptr) {
        return "libfuse refused the session: " + *last_message().lock();
    }
    last_message().lock()->clear();
    if (fuse_session_mount(session_.get(), mount_point_.c_str()) != 0) {
        std::string message = *last_message().lock();
        if (message.empty()) {
            message = "fusermount3 refused (its reason is on stderr)";
        }
        return "cannot mount at " + mount_point_ + ": " + message;
    }
    mounted_ = true;
    return std::nullopt;
}

void KernelSession::forget_name(NodeId parent, const std::string& name, const std::function<void()>& then) {
    const bool accepted = notifier_->submit([this, parent, name, then] {
        if (!unmounted_) {
            fuse_lowlevel_notify_inval_entry(session_.get(), parent, name.c_str(), name.size());
        }
        then();
    });
    if (!accepted) {
        then();
    }
}

// False if it waits for the kernel, which may be for a lookup that nobody serves any more. Then it keeps the
// session; the connection ends with the process.
bool KernelSession::end_notifier() {
    const auto idle = std::make_shared<std::promise<void>>();
    const auto is_idle = idle->get_future();
    if (notifier_->submit([idle] { idle->set_value(); }) &&
        is_idle.wait_for(notice_time_max) == std::future_status::timeout) {
        static_cast<void>(notifier_.release());
        static_cast<void>(session_.release());
        return false;
    }
    notifier_.reset();
    return true;
}

// Returns what fuse_session_receive_buf() does.
int KernelSession::take_request(RequestBuffer& request) {
    int received = 0;
    {
        const Cancellable while_waiting;
        received = fuse_session_receive_buf(session_.get(), &request.buffer);
    }
    if (received > 0) {
        ++counters_.requests;
        fuse_session_process_buf(session_.get(), &request.buffer);
    }
    return received;
}

void KernelSession::take_requests() {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    RequestBuffer request;
    while (fuse_session_exited(session_.get()) == 0) {
        const int received = take_request(request);
        if (received <= 0 && received != -EINTR && received != -EAGAIN) {
            break;  // unmounted (0), or the device is broken
        }
    }
    end_serving();
}

void KernelSession::end_serving() {
    fuse_session_exit(session_.get());
    *ended_.lock() = true;
    end_.notify_all();
}

// If it is wanted, and the kernel lets us.
void KernelSession::begin_passthrough() {
    if (served_.passthrough == PassthroughPolicy::off) {
        return;
    }
    auto memory =
        mount_memory({.bytes_max = cache_.statistics().budget_bytes, .files_max = Passthrough::files_max});
    operations_.use(
        Passthrough::start(cache_, std::move(memory),
                           {.add = [this](int file) { return add_backing(session_.get(), file); },
                            .remove = [this](BackingId id) { remove_backing(session_.get(), id); }}));
    passes_through_ = operations_.passes_through();
}

void KernelSession::serve() {
    // The first request is INIT, and is there already.
    RequestBuffer first;
    if (take_request(first) > 0) {
        raise_read_ahead(mount_point_, extent_bytes);  // the largest request that the kernel makes
        begin_passthrough();
    }
    std::vector<std::thread> threads;
    while (threads.size() < threads_max_) {
        threads.emplace_back([this] { take_requests(); });
    }
    {
        auto ended = ended_.lock();
        end_.wait(ended.lock(), [&ended] { return *ended; });
    }
    for (auto& thread : threads) {
        ::pthread_cancel(thread.native_handle());
        thread.join();
    }
    // If it was not stop(), somebody else unmounted it. Nothing is left to do for stop() then, and by now
    // another filesystem may be mounted there.
    unmounted_ = true;
}

void KernelSession::stop() {
    if (!mounted_) {
        return;
    }
    if (!unmounted_.exchange(true)) {
        unmount(mount_point_);
    }
    end_serving();
}

// Ends the connection. fuse_session_unmount() would unmount by path once more if the detached mount is still
// in use, whatever is mounted there by now. It does not where polling the device gives an error, as it gives
// for a pipe that nobody reads.
void KernelSession::disconnect() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
        ::close(ends[0]);
        ::dup3(ends[1], fuse_session_fd(session_.get()), O_CLOEXEC);
        ::close(ends[1]);
    }
    fuse_session_unmount(session_.get());
}

void KernelSession::forget(std::string_view path) {
    InodeTable& inodes = operations_.inodes();
    const auto parent = inodes.find(parent_path(path));
    if (parent && path != "/") {
        // Also where the name is not known: the kernel may have been told that it is absent. Dropping a name
        // drops all names below it.
        const std::string_view name = base_name(path);
        fuse_lowlevel_notify_inval_entry(session_.get(), *parent, std::string(name).c_str(), name.size());
    }
    const auto top = inodes.find(path);
    if (!top) {
        return;
    }
    const auto known = inodes.within(*top);
    for (const NodeId node : known) {
        if (path == "/" && node != root_node) {
            const auto place = inodes.place(node);
            if (place && place->parent == root_node) {
                fuse_lowlevel_notify_inval_entry(session_.get(), root_node, place->name.c_str(),
                                                 place->name.size());
            }
        }
        fuse_lowlevel_notify_inval_inode(session_.get(), node, 0, 0);
    }
    inodes.drop(known);
}

}  // namespace

tl::expected<std::unique_ptr<Session>, std::string> Session::mount(SessionOptions options, Cache& cache,
                                                                   FuseCounters& counters) {
    if (auto obstacle = obstacle_to_mount(options.mount_point, options.audience)) {
        return tl::unexpected(std::move(*obstacle));
    }
    fuse_set_log_func(keep_message);
    auto session = std::make_unique<KernelSession>(std::move(options), cache, counters);
    if (auto error = session->mount()) {
        return tl::unexpected(std::move(*error));
    }
    return session;
}

}  // namespace copper
