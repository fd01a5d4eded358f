#include "fuse/kernel_reply.hpp"

#include <atomic>
#include <cerrno>

#include "fuse/kernel_passthrough.hpp"

namespace copper {

class KernelReply final : public Reply {
  public:
    KernelReply(fuse_req_t request, std::shared_ptr<PendingReplies> pending)
        : request_(request), pending_(std::move(pending)) {}

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
        if (fuse_req_t request = take()) {
            fuse_reply_err(request, error_number);
        }
    }

    Sent entry(NodeId node, const struct stat& attributes, KernelCaching caching) override {
        const double seconds = caching == KernelCaching::forever ? kernel_keeps_seconds : 0;
        fuse_entry_param entry{};
        entry.ino = node;
        entry.attr = attributes;
        entry.attr_timeout = kernel_keeps_seconds;
        entry.entry_timeout = seconds;
        fuse_req_t request = take();
        return sent(request == nullptr ? -EIO : fuse_reply_entry(request, &entry));
    }

    void attributes(const struct stat& attributes) override {
        if (fuse_req_t request = take()) {
            fuse_reply_attr(request, &attributes, kernel_keeps_seconds);
        }
    }

    void link(const std::string& target) override {
        if (fuse_req_t request = take()) {
            fuse_reply_readlink(request, target.c_str());
        }
    }

    Sent opened(BackingId backing) override {
        fuse_file_info info{};
        if (backing != 0) {
            set_backing(info, backing);  // and nothing else, or the kernel refuses; it drops the pages it has
        } else {
            info.keep_cache = 1;
            info.cache_readdir = 1;
        }
        fuse_req_t request = take();
        return sent(request == nullptr ? -EIO : fuse_reply_open(request, &info));
    }

    Sent bytes(std::span<const iovec> pieces) override {
        fuse_req_t request = take();
        return sent(request == nullptr
                        ? -EIO
                        : fuse_reply_iov(request, pieces.data(), static_cast<int>(pieces.size())));
    }

    void size(std::size_t bytes) override {
        if (fuse_req_t request = take()) {
            fuse_reply_xattr(request, bytes);
        }
    }

    void statistics(const struct statvfs& statistics) override {
        if (fuse_req_t request = take()) {
            fuse_reply_statfs(request, &statistics);
        }
    }

    bool begin() override { return pending_->begin(); }
    void end() override { pending_->end(); }

  private:
    static Sent sent(int result) { return result == 0 ? Sent::yes : Sent::no; }

    // A request is answered once: whoever takes it answers it.
    fuse_req_t take() { return request_.exchange(nullptr); }

    std::atomic<fuse_req_t> request_;
    const std::shared_ptr<PendingReplies> pending_;
};

ReplyPtr PendingReplies::enter(fuse_req_t request) {
    auto reply = std::make_shared<KernelReply>(request, shared_from_this());
    state_.lock()->waiting.insert(reply.get());
    return reply;
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
    if (state->waiting.erase(reply) > 0 && state->closed) {
        // close() is under way and has not come to it.
        reply->error(ENOTCONN);
    }
}

void PendingReplies::close() {
    auto state = state_.lock();
    state->closed = true;
    idle_.wait(state.lock(), [&state] { return state->answering == 0; });
    // Held so that none of them is destroyed meanwhile. The one lock that is held across replies: nobody else
    // wants it any more but to learn that the session has ended.
    for (KernelReply* reply : state->waiting) {
        reply->error(ENOTCONN);
    }
    state->waiting.clear();
}

}  // namespace copper
