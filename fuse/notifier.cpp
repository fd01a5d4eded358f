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

bool Notifier::submit(NumberSpace filesystem, Thread Threads::*thread, ThreadPool::Job job) {
    return ((*threads_.lock())[filesystem].*thread)->submit(std::move(job));
}

void Notifier::content(InodeId inode) {
    // Where the queue is full, the kernel keeps what it has.
    static_cast<void>(
        submit(inodes_.numbers(inode), &Threads::contents, [session = session_, stopped = stopped_, inode] {
            if (!*stopped) {
                fuse_lowlevel_notify_inval_inode(session, inode, 0, 0);
            }
        }));
}

void Notifier::name(InodeId parent, const std::string& name, std::function<void()> then) {
    // Not `this`: it may outlive the Notifier.
    const bool accepted =
        submit(inodes_.numbers(parent), &Threads::names,
               [session = session_, stopped = stopped_, parent, name, then] {
                   if (!*stopped) {
                       fuse_lowlevel_notify_inval_entry(session, parent, name.c_str(), name.size());
                   }
                   then();
               });
    if (!accepted) {
        then();
    }
}

// What a refresh means for one filesystem.
struct Notifier::Part {
    Refreshed refreshed;
    std::vector<InodeId> directories;  // that the kernel knew before
};

// On one filesystem. Each name below the paths takes a call of its own: with a directory, the kernel drops
// only what nobody uses. Names that are absent, which only the kernel knows, go with their directory. Before,
// requests in these directories that are older than the refresh must have ended, since the kernel keeps their
// answers: it drops a name only when no lookup and no listing is under way in the directory
// (fuse_reverse_inval_entry() takes its lock), whether there is such a name or not.
class Notifier::Refresh {
  public:
    Refresh(const Notifier& of, NumberSpace filesystem)
        : session_(of.session_), inodes_(of.inodes_), stopped_(of.stopped_), filesystem_(filesystem) {}

    void operator()(const std::vector<Part>& parts) const {
        for (const Part& part : parts) {
            constexpr std::string_view no_name = ".copper-refresh";
            for (const InodeId directory : part.directories) {
                drop(directory, no_name);
            }
            if (*stopped_) {
                return;
            }
            const auto now =
                inodes_.doubt(part.refreshed.path, part.refreshed.reach, filesystem_)[filesystem_];
            for (const auto& [parent, name] : now.names) {
                drop(parent, name);
            }
            for (const InodeId directory : now.directories) {
                if (!*stopped_) {
                    fuse_lowlevel_notify_inval_inode(session_, directory, 0, 0);
                }
            }
        }
    }

  private:
    void drop(InodeId parent, std::string_view name) const {
        if (!*stopped_) {
            fuse_lowlevel_notify_inval_entry(session_, parent, name.data(), name.size());
        }
    }

    fuse_session* const session_;
    InodeTable& inodes_;  // is there until `stopped_`
    const std::shared_ptr<const std::atomic<bool>> stopped_;
    const NumberSpace filesystem_;
};

bool Notifier::refresh(std::vector<Refreshed> refreshed, std::function<void()> first,
                       std::function<void()> then) {
    const auto over = std::make_shared<std::promise<void>>();  // when nobody has it any more
    {
        auto under_way = under_way_.lock();
        std::erase_if(*under_way, [](const std::future<void>& one) {
            return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        });
        if (under_way->size() >= waiting_max) {
            return false;
        }
        under_way->push_back(over->get_future());
    }
    return planner_->submit(
        [this, over, refreshed = std::move(refreshed), first = std::move(first), then = std::move(then)] {
            if (*stopped_) {
                return;
            }
            first();
            std::map<NumberSpace, std::vector<Part>> parts;
            for (const Refreshed& one : refreshed) {
                for (auto& [filesystem, below] : inodes_.doubt(one.path, one.reach)) {
                    parts[filesystem].push_back({one, std::move(below.directories)});
                }
            }
            const auto left = std::make_shared<std::atomic<std::size_t>>(parts.size());
            for (auto& [filesystem, own] : parts) {
                // Not `this`, as above.
                static_cast<void>(submit(filesystem, &Threads::refreshes,
                                         [refresh = Refresh(*this, filesystem), own = std::move(own), over,
                                          left, then, stopped = stopped_] {
                                             refresh(own);
                                             if (--*left == 0 && !*stopped) {
                                                 then();
                                             }
                                         }));
            }
        });
}

bool Notifier::end() {
    planner_.reset();
    const auto until = std::chrono::steady_clock::now() + notice_time_max;
    const auto ends = [until](const std::future<void>& one) {
        return one.wait_until(until) == std::future_status::ready;
    };
    const bool refreshes_ended = std::ranges::all_of(*under_way_.lock(), ends);
    bool have_ended = refreshes_ended;
    auto threads = threads_.lock();
    for (auto& [filesystem, of] : *threads) {
        for (Thread* one : {&of.names, &of.contents}) {
            const auto idle = std::make_shared<std::promise<void>>();
            if ((*one)->submit([idle] { idle->set_value(); }) && !ends(idle->get_future())) {
                static_cast<void>(one->release());
                have_ended = false;
            }
        }
        if (!refreshes_ended) {
            static_cast<void>(of.refreshes.release());
        }
    }
    return have_ended;
}

}  // namespace copper
