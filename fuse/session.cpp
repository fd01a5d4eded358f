#include "fuse/session.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "fuse/connection.hpp"
#include "fuse/dispatch.hpp"
#include "fuse/interrupts.hpp"
#include "fuse/kernel_passthrough.hpp"
#include "fuse/mount_point.hpp"
#include "fuse/notifier.hpp"
#include "fuse/serving.hpp"

namespace copper {
namespace {

// The parts of one mount, each made from those before it.
class KernelSession final : public Session {
  public:
    KernelSession(const SessionOptions& options, Cache& cache, FuseCounters& counters, LastingMemory memory)
        : memory_(std::move(memory)),
          mount_point_(options.mount_point),
          threads_(std::max<std::size_t>(options.threads, 1)),
          cache_(cache),
          pending_(std::make_shared<PendingReplies>()),
          interrupts_(*pending_),
          operations_(
              options, cache, counters,
              {.attributes = [this](InodeId inode) { notifier_.attributes(inode); },
               .content = [this](InodeId inode) { notifier_.content(inode); },
               .name = [this](InodeId parent, const std::string& name,
                              std::function<void()> then) { notifier_.name(parent, name, std::move(then)); }},
              memory_.inodes()),
          served_{.operations = operations_,
                  .pending = *pending_,
                  .passthrough = options.passthrough,
                  .audience = options.audience,
                  .page_filler = options.page_filler},
          connection_(options, served_),
          serving_(connection_, memory_, counters, interrupts_),
          notifier_(connection_.session(), operations_.inodes()) {}

    ~KernelSession() override {
        stop();
        pending_->close();
        if (!notifier_.end()) {
            connection_.abandon();
        } else if (connection_.is_mounted()) {
            connection_.disconnect();
        }
    }

    std::optional<std::string> mount() { return connection_.mount(); }
    std::optional<std::string> resume(const UniqueFd& device) { return serving_.resume(device); }

    HandOver hand_over() const override {
        return {.device = connection_.device(),
                .memory = UniqueFd(::fcntl(memory_.file(), F_DUPFD_CLOEXEC, 0))};
    }
    void serve() override;
    void stop() override;
    bool refresh(std::vector<Refreshed> refreshed, std::function<void()> done) override {
        return notifier_.refresh(
            std::move(refreshed), [this] { cache_.drop_outdated(); }, std::move(done));
    }
    bool passes_through() const override { return passes_through_; }

  private:
    void begin_passthrough();

    LastingMemory memory_;
    const std::string mount_point_;
    const std::size_t threads_;
    Cache& cache_;
    const std::shared_ptr<PendingReplies> pending_;
    Interrupts interrupts_;
    Operations operations_;
    Served served_;
    Connection connection_;
    Serving serving_;
    Notifier notifier_;
    std::atomic<bool> unmounted_ = false;
    std::atomic<bool> passes_through_ = false;
};

// Starts passthrough if it is wanted and the kernel allows it.
void KernelSession::begin_passthrough() {
    if (served_.passthrough == PassthroughPolicy::off) {
        return;
    }
    auto memory =
        mount_memory({.bytes_max = cache_.statistics().budget_bytes, .files_max = Passthrough::files_max});
    fuse_session* const session = connection_.session();
    operations_.use(Passthrough::start(cache_, std::move(memory),
                                       {.add = [session](int file) { return add_backing(session, file); },
                                        .remove = [session](BackingId id) { remove_backing(session, id); }}));
    passes_through_ = operations_.passes_through();
}

void KernelSession::serve() {
    serving_.run(threads_, [this] {
        raise_read_ahead(mount_point_, extent_bytes);  // the kernel's largest request
        begin_passthrough();
    });
    // If not stop(), somebody else has unmounted. Then stop() has nothing to do, and another filesystem may
    // be mounted there by now.
    unmounted_ = true;
    notifier_.stop();
}

void KernelSession::stop() {
    if (!connection_.is_mounted()) {
        return;
    }
    notifier_.stop();
    if (!unmounted_.exchange(true)) {
        unmount(mount_point_);
    }
    serving_.end();
}

}  // namespace

tl::expected<std::unique_ptr<Session>, std::string> Session::mount(SessionOptions options, Cache& cache,
                                                                   FuseCounters& counters) {
    if (auto obstacle = obstacle_to_mount(options.mount_point, options.audience)) {
        return tl::unexpected(std::move(*obstacle));
    }
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
