#include "fuse/session.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>
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

// A thread can be cancelled while this lives, and only then.
class Cancellable {
  public:
    Cancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr); }
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;
    ~Cancellable() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
};

// The kernel gives out requests only where the longest would fit: one that writes.
constexpr std::size_t longest_request_bytes = extent_bytes + (64U << 10);

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
    KernelSession(SessionOptions options, Cache& cache, FuseCounters& counters, LastingMemory memory)
        : memory_(std::move(memory)),
          slots_(memory_.requests()),
          mount_point_(options.mount_point),
          threads_max_(std::max<std::size_t>(options.threads_max, 1)),
          cache_(cache),
          counters_(counters),
          pending_(std::make_shared<PendingReplies>()),
          operations_(options, cache, counters,
                      {.attributes = [this](NodeId node) { invalidate_attributes(node); },
                       .name = [this](NodeId parent, const std::string& name,
                                      std::function<void()> then) { forget_name(parent, name, then); }},
                      memory_.inodes()),
          served_{.operations = operations_,
                  .pending = *pending_,
                  .passthrough = options.passthrough,
                  .audience = options.audience},
          session_(new_session(options, served_)) {}

    ~KernelSession() override {
        stop();
        pending_->close();
        if (end_notifier() && mounted_) {
            disconnect();
        }
    }

    std::optional<std::string> mount();
    std::optional<std::string> resume(const UniqueFd& device);
    HandOver hand_over() const override;
    void serve() override;
    void stop() override;
    bool passes_through() const override { return passes_through_; }

  private:
    void invalidate_attributes(NodeId node) {
        // A negative offset: attributes only, so that no page's lock is waited for.
        fuse_lowlevel_notify_inval_inode(session_.get(), node, -1, 0);
    }
    void forget_name(NodeId parent, const std::string& name, const std::function<void()>& then);
    bool end_notifier();
    bool take_request(std::span<std::byte> rest);
    void process(RequestSlots::Lease slot, std::span<std::byte> request);
    void begin();
    void begin_passthrough();
    void take_requests();
    void end_serving();
    void disconnect();

    LastingMemory memory_;
    RequestSlots slots_;
    // Of the process before, until serve().
    std::vector<RequestSlots::Lease> unanswered_;
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

// libfuse serves an open descriptor. INIT is told to it again, but the kernel must not hear the answer again:
// the descriptor becomes the device after that.
std::optional<std::string> KernelSession::resume(const UniqueFd& device) {
    UniqueFd descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const std::string name = "/dev/fd/" + std::to_string(descriptor.get());
    if (session_ == nullptr || fuse_session_mount(session_.get(), name.c_str()) != 0) {
        return "libfuse cannot go on with " + mount_point_ + ": " + *last_message().lock();
    }
    const int served = descriptor.release();
    mounted_ = true;
    unanswered_ = slots_.take_unanswered();
    // Where the other process was killed before the kernel got the answer, it is one of them.
    const auto init = std::find_if(unanswered_.begin(), unanswered_.end(),
                                   [](const auto& slot) { return is_init(slot.bytes()); });
    if (init == unanswered_.end()) {
        std::vector<std::byte> request(memory_.init().begin(), memory_.init().end());
        if (!request.empty()) {  // else the kernel has not asked yet
            process({}, request);
        }
    }
    if (::dup3(device.get(), served, O_CLOEXEC) < 0) {
        return "cannot go on with " + mount_point_ + ": " + std::generic_category().message(errno);
    }
    if (init != unanswered_.end()) {
        const auto bytes = init->bytes();
        process(std::move(*init), bytes.first(request_bytes(bytes)));
        unanswered_.erase(init);
    }
    return std::nullopt;
}

HandOver KernelSession::hand_over() const {
    return {.device = UniqueFd(::fcntl(fuse_session_fd(session_.get()), F_DUPFD_CLOEXEC, 0)),
            .memory = UniqueFd(::fcntl(memory_.file(), F_DUPFD_CLOEXEC, 0))};
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

// False if there will be no more. A request that does not fit into its slot goes on in `rest`.
bool KernelSession::take_request(std::span<std::byte> rest) {
    auto slot = slots_.take();
    if (!slot) {
        return false;
    }
    const auto bytes = slot->bytes();
    const iovec places[] = {{bytes.data(), bytes.size()}, {rest.data(), rest.size()}};
    ssize_t got = 0;
    int error = 0;
    {
        const Cancellable while_waiting;
        got = ::readv(fuse_session_fd(session_.get()), places, 2);
        error = errno;
    }
    if (got <= 0) {
        // ENOENT: it was interrupted before it came here. ENODEV: unmounted.
        return got < 0 && (error == EINTR || error == EAGAIN || error == ENOENT);
    }
    ++counters_.requests;
    const auto size = static_cast<std::size_t>(got);
    if (size <= bytes.size()) {
        process(std::move(*slot), bytes.first(size));
        return true;
    }
    // Inodes to forget. (If the process is killed now, its successor does not forget them.)
    std::vector<std::byte> whole(bytes.begin(), bytes.end());
    whole.insert(whole.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size - bytes.size()));
    process(std::move(*slot), whole);
    return true;
}

void KernelSession::process(RequestSlots::Lease slot, std::span<std::byte> request) {
    if (is_init(request)) {
        memory_.keep_init(request);
    }
    const SlotInHand in_hand(std::move(slot));
    fuse_buf buffer{};
    buffer.mem = request.data();
    buffer.size = request.size();
    fuse_session_process_buf(session_.get(), &buffer);
}

void KernelSession::take_requests() {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    const auto rest = std::make_unique_for_overwrite<std::byte[]>(longest_request_bytes);
    while (fuse_session_exited(session_.get()) == 0 && take_request({rest.get(), longest_request_bytes})) {
    }
    end_serving();
}

void KernelSession::end_serving() {
    fuse_session_exit(session_.get());
    slots_.close();
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

// The first request is INIT, which is there already where the mount is new.
void KernelSession::begin() {
    if (memory_.init().empty()) {
        const auto rest = std::make_unique_for_overwrite<std::byte[]>(longest_request_bytes);
        if (!take_request({rest.get(), longest_request_bytes})) {
            return;
        }
    }
    raise_read_ahead(mount_point_, extent_bytes);  // the largest request that the kernel makes
    begin_passthrough();
    for (auto& slot : std::exchange(unanswered_, {})) {
        const auto bytes = slot.bytes();
        process(std::move(slot), bytes.first(request_bytes(bytes)));
    }
}

void KernelSession::serve() {
    begin();
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

}  // namespace

tl::expected<std::unique_ptr<Session>, std::string> Session::mount(SessionOptions options, Cache& cache,
                                                                   FuseCounters& counters) {
    if (auto obstacle = obstacle_to_mount(options.mount_point, options.audience)) {
        return tl::unexpected(std::move(*obstacle));
    }
    fuse_set_log_func(keep_message);
    auto memory = LastingMemory::make();
    if (!memory) {
        return tl::make_unexpected(memory.error());
    }
    auto session = std::make_unique<KernelSession>(std::move(options), cache, counters, std::move(*memory));
    if (auto error = session->mount()) {
        return tl::unexpected(std::move(*error));
    }
    return session;
}

tl::expected<std::unique_ptr<Session>, std::string> Session::resume(SessionOptions options, Cache& cache,
                                                                    FuseCounters& counters,
                                                                    HandOver left_behind) {
    fuse_set_log_func(keep_message);
    auto memory = LastingMemory::adopt(std::move(left_behind.memory));
    if (!memory) {
        return tl::make_unexpected(memory.error());
    }
    auto session = std::make_unique<KernelSession>(std::move(options), cache, counters, std::move(*memory));
    if (auto error = session->resume(left_behind.device)) {
        return tl::unexpected(std::move(*error));
    }
    return session;
}

}  // namespace copper
