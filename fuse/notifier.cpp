#include "fuse/notifier.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>
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

// Each name below the paths takes a call of its own: with a directory, the kernel drops only what nobody
// uses. Names that are absent, which only the kernel knows, go with their directory. Before, requests in
// these directories that are older than the refresh must have ended, since the kernel keeps their answers: it
// drops a name only when no lookup and no listing is under way in the directory (fuse_reverse_inval_entry()
// takes its lock), whether there is such a name or not.
bool Notifier::refresh(InodeTable& inodes, std::vector<Refreshed> refreshed, std::function<void()> first,
                       std::function<void()> then) {
    const auto over = std::make_shared<std::promise<void>>();
    {
        auto under_way = under_way_.lock();
        std::erase_if(*under_way, [](const std::future<void>& one) {
            return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        });
        under_way->push_back(over->get_future());
    }
    // Not `this`, as above. And `inodes` is there until `stopped`: see end().
    return refreshes_->submit([session = session_, stopped = stopped_, over, &inodes,
                               refreshed = std::move(refreshed), first = std::move(first),
                               then = std::move(then)] {
        const auto drop = [&](InodeId parent, std::string_view name) {
            if (!*stopped) {
                fuse_lowlevel_notify_inval_entry(session, parent, name.data(), name.size());
            }
        };
        const auto doubt = [&](const Refreshed& one) {
            return *stopped ? InodeTable::Below() : inodes.doubt(one.path, one.reach);
        };
        if (!*stopped) {
            first();
        }
        for (const Refreshed& one : refreshed) {
            constexpr std::string_view no_name = ".copper-refresh";
            const auto before = doubt(one);
            for (const InodeId directory : before.directories) {
                drop(directory, no_name);
            }
            const auto now = doubt(one);
            for (const auto& [parent, name] : now.names) {
                drop(parent, name);
            }
            for (const InodeId directory : now.directories) {
                if (!*stopped) {
                    fuse_lowlevel_notify_inval_inode(session, directory, 0, 0);
                }
            }
        }
        if (!*stopped) {
            then();
        }
        over->set_value();
    });
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
    const bool contents_ended = end(contents_);
    const auto until = std::chrono::steady_clock::now() + notice_time_max;
    auto under_way = under_way_.lock();
    const bool refreshes_ended = std::ranges::all_of(*under_way, [until](const std::future<void>& one) {
        return one.wait_until(until) == std::future_status::ready;
    });
    if (!refreshes_ended) {
        static_cast<void>(refreshes_.release());
    }
    return names_ended && contents_ended && refreshes_ended;
}

}  // namespace copper
