#include "fuse/kernel_reply.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "fuse/kernel_passthrough.hpp"

namespace copper {
namespace {

thread_local RequestSlots::Lease* in_hand = nullptr;

}  // namespace

SlotInHand::SlotInHand(RequestSlots::Lease lease) : lease_(std::move(lease)) {
    in_hand = &lease_;
}

SlotInHand::~SlotInHand() {
    in_hand = nullptr;
}

RequestSlots::Lease SlotInHand::take_over() {
    return in_hand != nullptr ? std::move(*in_hand) : RequestSlots::Lease();
}

class KernelReply final : public Reply, public std::enable_shared_from_this<KernelReply> {
  public:
    KernelReply(fuse_req_t request, std::shared_ptr<PendingReplies> pending)
        : request_(request),
          slot_(SlotInHand::take_over()),
          asker_(slot_.is_empty() ? Asker() : asker_of(slot_.bytes())),
          pending_(std::move(pending)) {}

    ~KernelReply() override {
        const bool session_is_open = begin();
        if (session_is_open) {
            error(EIO);
        }
        pending_->leave(this);
        if (session_is_open) {
            end();
        }
    }

    void error(int error_number) override {
        if (const Taken taken = take()) {
            fuse_reply_err(taken.request, error_number);
        }
    }

    Sent entry(InodeId inode, const struct stat& attributes, KernelCaching caching) override {
        const double seconds = caching == KernelCaching::forever ? kernel_keeps_seconds : 0;
        fuse_entry_param entry{};
        entry.ino = inode;
        entry.attr = attributes;
        entry.attr_timeout = kernel_keeps_seconds;
        entry.entry_timeout = seconds;
        const Taken taken = take();
        return sent(taken ? fuse_reply_entry(taken.request, &entry) : -EIO);
    }

    void attributes(const struct stat& attributes) override {
        if (const Taken taken = take()) {
            fuse_reply_attr(taken.request, &attributes, kernel_keeps_seconds);
        }
    }

    void link(const std::string& target) override {
        if (const Taken taken = take()) {
            fuse_reply_readlink(taken.request, target.c_str());
        }
    }

    Sent opened(BackingId backing) override {
        fuse_file_info info{};
        if (backing != 0) {
            set_backing(info, backing);  // set nothing else, or the kernel refuses; it drops its pages
        } else {
            info.keep_cache = 1;
            info.cache_readdir = 1;
        }
        const Taken taken = take();
        return sent(taken ? fuse_reply_open(taken.request, &info) : -EIO);
    }

    Sent bytes(std::span<const iovec> pieces) override {
        const Taken taken = take();
        return sent(taken ? fuse_reply_iov(taken.request, pieces.data(), static_cast<int>(pieces.size()))
                          : -EIO);
    }

    void size(std::size_t bytes) override {
        if (const Taken taken = take()) {
            fuse_reply_xattr(taken.request, bytes);
        }
    }

    void position(std::uint64_t offset) override {
        if (const Taken taken = take()) {
            fuse_reply_lseek(taken.request, static_cast<off_t>(offset));
        }
    }

    void statistics(const struct statvfs& statistics) override {
        if (const Taken taken = take()) {
            fuse_reply_statfs(taken.request, &statistics);
        }
    }

    const Asker& asker() const { return asker_; }

    bool begin() override { return pending_->begin(); }
    void end() override { pending_->end(); }

  private:
    static Sent sent(int result) { return result == 0 ? Sent::yes : Sent::no; }

    struct Taken {
        fuse_req_t request = nullptr;
        RequestSlots::Lease slot = {};
        explicit operator bool() const { return request != nullptr; }
    };
    // A request is answered once: the thread that takes it answers it and then frees its slot.
    Taken take() {
        fuse_req_t request = request_.exchange(nullptr);
        return request != nullptr ? Taken{.request = request, .slot = std::move(slot_)} : Taken();
    }

    std::atomic<fuse_req_t> request_;
    RequestSlots::Lease slot_;  // for the thread that takes the request
    const Asker asker_;
    const std::shared_ptr<PendingReplies> pending_;
};

ReplyPtr PendingReplies::enter(fuse_req_t request) {
    auto reply = std::make_shared<KernelReply>(request, shared_from_this());
    state_.lock()->waiting.emplace(reply->asker().request, reply.get());
    return reply;
}

// Nothing if it has been answered, too: then its Reply is being destroyed.
std::shared_ptr<KernelReply> PendingReplies::find(std::uint64_t request) {
    auto state = state_.lock();
    const auto found = state->waiting.find(request);
    return found != state->waiting.end() ? found->second->weak_from_this().lock() : nullptr;
}

std::optional<pid_t> PendingReplies::waiter(std::uint64_t request) {
    const auto reply = find(request);
    return reply != nullptr ? std::optional(reply->asker().thread) : std::nullopt;
}

void PendingReplies::interrupt(std::uint64_t request) {
    const auto reply = find(request);
    if (reply != nullptr && reply->begin()) {
        reply->error(EINTR);
        reply->end();
    }
}

bool PendingReplies::begin() {
    auto state = state_.lock();
    if (state->closed) {
        return false;
    }
    ++state->answering;
    return true;
}

void PendingReplies::end() {
    auto state = state_.lock();
    if (--state->answering == 0 && state->closed) {
        idle_.notify_all();
    }
}

void PendingReplies::leave(KernelReply* reply) {
    auto state = state_.lock();
    const auto [begin, end] = state->waiting.equal_range(reply->asker().request);
    const auto found = std::find_if(begin, end, [&](const auto& one) { return one.second == reply; });
    if (found == end) {
        return;
    }
    state->waiting.erase(found);
    if (state->closed) {
        // close() is under way and has not reached this one.
        reply->error(ENOTCONN);
    }
}

void PendingReplies::close() {
    auto state = state_.lock();
    state->closed = true;
    idle_.wait(state.lock(), [&state] { return state->answering == 0; });
    // Holding the lock keeps all of them alive. This is the only lock held across replies: others want it
    // only to learn that the session has ended.
    for (const auto& [request, reply] : state->waiting) {
        reply->error(ENOTCONN);
    }
    state->waiting.clear();
}

}  // namespace copper
