#include "fuse/notifier.hpp"

#include <chrono>
#include <future>
#include <utility>

namespace copper {
namespace {

// At the end of the session, time for the kernel to drop the last names.
constexpr std::chrono::seconds notice_time_max{2};

}  // namespace

void Notifier::attributes(InodeId inode) {
    // A negative offset: attributes only, which waits for no page lock.
    fuse_lowlevel_notify_inval_inode(session_, inode, -1, 0);
}

void Notifier::content(InodeId inode) {
    // Where the queue is full, the kernel keeps what it has.
    static_cast<void>(contents_->submit([session = session_, stopped = stopped_, inode] {
        if (!*stopped) {
            fuse_lowlevel_notify_inval_inode(session, inode, 0, 0);
        }
    }));
}

void Notifier::name(InodeId parent, const std::string& name, std::function<void()> then) {
    // Not `this`: it may outlive the Notifier.
    const bool accepted = names_->submit([session = session_, stopped = stopped_, parent, name, then] {
        if (!*stopped) {
            fuse_lowlevel_notify_inval_entry(session, parent, name.c_str(), name.size());
        }
        then();
    });
    if (!accepted) {
        then();
    }
}

bool Notifier::end(Thread& thread) {
    const auto idle = std::make_shared<std::promise<void>>();
    const auto is_idle = idle->get_future();
    if (thread->submit([idle] { idle->set_value(); }) &&
        is_idle.wait_for(notice_time_max) == std::future_status::timeout) {
        static_cast<void>(thread.release());
        return false;
    }
    thread.reset();
    return true;
}

bool Notifier::end() {
    const bool names_ended = end(names_);
    return end(contents_) && names_ended;
}

}  // namespace copper
