// lookup, forget, getattr, readlink, statfs. (access is never called: with default_permissions the kernel
// decides.)
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "base/path.hpp"
#include "fuse/operations.hpp"

namespace copper {
namespace {

using SteadyClock = std::chrono::steady_clock;

timespec to_timespec(const Timestamp& stamp) {
    return {.tv_sec = stamp.seconds, .tv_nsec = static_cast<long>(stamp.nanoseconds)};
}

// Of Python, which looks for it in a directory beside each module that it imports. (A .pyc beside its source
// would be a module without source, which hardly anybody has.)
bool is_bytecode(std::string_view path) {
    constexpr std::string_view cache = "__pycache__";
    return base_name(path) == cache || (path.ends_with(".pyc") && base_name(parent_path(path)) == cache);
}

}  // namespace

struct stat to_stat(const InodeTable::Told& told) {
    const Attributes& attributes = told.attributes;
    struct stat st {};
    st.st_ino = told.number;
    st.st_mode = attributes.mode;
    st.st_nlink = attributes.links;
    st.st_uid = attributes.user;
    st.st_gid = attributes.group;
    st.st_rdev = attributes.device;
    st.st_size = static_cast<off_t>(attributes.size);
    st.st_blocks = static_cast<blkcnt_t>(attributes.blocks);
    st.st_blksize = static_cast<blksize_t>(attributes.block_bytes);
    st.st_atim = to_timespec(attributes.accessed);
    st.st_mtim = to_timespec(attributes.modified);
    st.st_ctim = to_timespec(attributes.changed);
    return st;
}

int to_errno(const std::error_code& error) {
    // The kernel drops replies with larger numbers, and NFS leaks such numbers. They become I/O errors, and
    // so does a missing error.
    constexpr int errno_max = 511;
    const bool valid =
        error.category() == std::generic_category() && error.value() > 0 && error.value() <= errno_max;
    return valid ? error.value() : EIO;
}

Operations::Operations(SessionOptions options, Cache& cache, FuseCounters& counters, KernelNotices notices,
                       std::span<std::byte> inodes)
    : options_(std::move(options)),
      cache_(cache),
      counters_(counters),
      notices_(std::move(notices)),
      inodes_(options_.root, inodes, options_.main_filesystem),
      guesses_(cache_, options_.trees, counters_.guesses, options_.shared_file_bytes_max),
      entries_(cache_, options_.trees,
               [this](const std::string& path, Foresight foresight) { guesses_.looked_up(path, foresight); }),
      xattrs_(cache_, options_.trees),
      walk_(cache_) {}

std::string Operations::target_told(const Listing::Entry& entry) const {
    const bool rewritten = options_.symlinks == SymlinkPolicy::rewrite && entry.leads_into_trees &&
                           options_.mount_point.size() + entry.target.size() < path_bytes_max;
    return (rewritten ? options_.mount_point : "") + std::string(entry.target);
}

// The size of a symbolic link is the length of its text. The kernel cuts cached links at that length.
Attributes Operations::attributes_told(const Listing::Entry& entry) const {
    Attributes told = entry.attributes;
    if (S_ISLNK(told.mode) && !entry.target.empty()) {
        told.size = target_told(entry).size();
    }
    return told;
}

std::optional<InodeTable::Told> Operations::look_up(InodeId parent, std::string_view name,
                                                    std::uint64_t asked, const Listing::Entry& entry) {
    return inodes_.look_up(
        parent, name, attributes_told(entry),
        entry.begins_filesystem ? InodeTable::Filesystem::own : InodeTable::Filesystem::of_parent, asked);
}

void Operations::answer_lookup(const ReplyPtr& reply, const LookupRequest& request,
                               const Resolution& resolution) {
    const auto& found = resolution.found;
    if (!found) {
        reply->error(to_errno(found.error()));
        return;
    }
    // What is mounted later on the backing side appears in the root. The few names that are absent there are
    // asked for each time.
    const bool may_appear = !*found && request.parent == root_inode;
    const auto caching = resolution.lasts && !may_appear ? KernelCaching::forever : KernelCaching::never;
    if (!*found) {
        reply->entry(0, {}, caching);
        return;
    }
    const auto told = look_up(request.parent, base_name(request.path), request.asked, (*found)->view());
    if (!told) {
        reply->error(ENOMEM);
        return;
    }
    note_use_of_filled(request.path, told->attributes);
    if (reply->entry(told->inode, to_stat(*told), caching) == Sent::no) {
        inodes_.forget(told->inode, 1);
    }
}

// Of a file that was changing when a program read it. The snapshot may know an older version of it than its
// bytes are of by now, in another size. So the bytes are asked for first.
void Operations::answer_unsettled_lookup(const ReplyPtr& reply, const LookupRequest& request,
                                         const Resolution& resolution) {
    const auto& found = resolution.found;
    const bool is_file = found && *found && S_ISREG((*found)->attributes.mode);
    const auto told = is_file
                          ? look_up(request.parent, base_name(request.path), request.asked, (*found)->view())
                          : std::nullopt;
    if (!told) {
        unsettled_.remove(request.path);
        answer_lookup(reply, request, resolution);
        return;
    }
    cache_.get(extent_key(request.path, told->attributes, Source::shared),
               answering(reply, [this, request, resolution, told = *told](const ReplyPtr& answer,
                                                                          const ObjectPtr& object) {
                   const bool is_unsettled = object->error() == std::errc::resource_unavailable_try_again;
                   if (!is_unsettled) {
                       unsettled_.remove(request.path);
                   }
                   const Extent* extent = object->extent();
                   if (extent != nullptr && version_of(extent->attributes) != version_of(told.attributes)) {
                       inodes_.supersede(told.inode, extent->attributes);
                   }
                   answer_lookup(answer, request,
                                 {.found = resolution.found, .lasts = resolution.lasts && !is_unsettled});
                   inodes_.forget(told.inode, 1);
               }));
}

void Operations::note_use_of_filled(const std::string& path, const Attributes& told) {
    for (const std::uint32_t extent : filled_.take(path)) {
        ObjectKey key = extent_key(path, told, Source::shared);
        key.index = extent;
        cache_.use(key);
        counters_.files_read += extent == 0 ? 1 : 0;
    }
}

void Operations::answer_known_lookup(const ReplyPtr& reply, const LookupRequest& request) {
    const std::string name(base_name(request.path));
    const auto known = entries_.known(std::string(parent_path(request.path)), name);
    const auto told = known && !unsettled_.contains(request.path)
                          ? look_up(request.parent, name, request.asked, known->view())
                          : std::nullopt;
    if (!told) {
        reply->error(EAGAIN);
        return;
    }
    filled_.looked_up(request.path);
    if (reply->entry(told->inode, to_stat(*told), KernelCaching::never) == Sent::no) {
        inodes_.forget(told->inode, 1);
    }
}

void Operations::lookup(ReplyPtr reply, InodeId parent, std::string_view name, By by) {
    counters_.lookup += by == By::program ? 1 : 0;
    if (name.size() > name_bytes_max) {
        reply->error(ENAMETOOLONG);
        return;
    }
    const auto directory = inodes_.path(parent);
    if (!directory) {
        reply->error(ESTALE);
        return;
    }
    if (directory->size() + 1 + name.size() >= path_bytes_max) {
        reply->error(ENAMETOOLONG);
        return;
    }
    LookupRequest request{.parent = parent, .path = join_path(*directory, name), .asked = inodes_.doubts()};
    if (by == By::page_filler && options_.trees.contains(request.path)) {
        answer_known_lookup(reply, request);
        return;
    }
    entries_.resolve(
        *directory, std::string(name),
        answering(std::move(reply), [this, request = std::move(request), arrived = SteadyClock::now()](
                                        const ReplyPtr& answer, const Resolution& resolution) {
            const std::string& path = request.path;
            if (unsettled_.contains(path)) {
                answer_unsettled_lookup(answer, request, resolution);
            } else {
                answer_lookup(answer, request, resolution);
            }
            counters_.lookup_latency.record(SteadyClock::now() - arrived);
            const bool is_absent = resolution.found && !*resolution.found;
            counters_.hot_paths.count(path, {.absent = is_absent ? 1U : 0U});
            if (is_absent && is_bytecode(path)) {
                ++counters_.bytecode_absent;
            }
        }));
}

void Operations::forget(InodeId inode, std::uint64_t lookups) {
    if (inodes_.forget(inode, lookups) == InodeTable::Known::no_more && passthrough_ != nullptr) {
        passthrough_->forget(inode);
    }
}

// Repeats the attributes that the kernel has, so that it never sees attributes and bytes of different
// versions.
void Operations::repeat_attributes(const ReplyPtr& reply, InodeId inode) {
    if (const auto told = inodes_.told(inode)) {
        reply->attributes(to_stat(*told));
    } else {
        reply->error(ESTALE);
    }
}

// A directory keeps its inode when a name in it is refreshed, but not its time of change, by which programs
// see that (Python, for the modules that it may import).
void Operations::getattr(ReplyPtr reply, InodeId inode) {
    ++counters_.getattr;
    const auto place = inodes_.doubted_directory(inode);
    if (!place) {
        repeat_attributes(reply, inode);
        return;
    }
    entries_.resolve(place->directory, place->name,
                     answering(std::move(reply), [this, inode, place = *place, asked = inodes_.doubts()](
                                                     const ReplyPtr& answer, const Resolution& resolution) {
                         const auto& found = resolution.found;
                         const auto told = found && *found
                                               ? look_up(place.parent, place.name, asked, (*found)->view())
                                               : std::nullopt;
                         if (told) {
                             inodes_.forget(told->inode, 1);
                         }
                         repeat_attributes(answer, inode);
                     }));
}

void Operations::readlink(ReplyPtr reply, InodeId inode) {
    ++counters_.readlink;
    const auto place = inodes_.place(inode);
    if (!place) {
        reply->error(ESTALE);
        return;
    }
    entries_.resolve(
        place->directory, place->name,
        answering(std::move(reply), [this, inode](const ReplyPtr& answer, const Resolution& resolution) {
            const auto& found = resolution.found;
            if (!found) {
                answer->error(to_errno(found.error()));
            } else if (!*found) {
                answer->error(ENOENT);
            } else if (!S_ISLNK((*found)->attributes.mode)) {
                answer->error(EINVAL);
            } else if ((*found)->target.empty()) {
                answer->error(EPERM);
            } else {
                const std::string target = target_told((*found)->view());
                const auto told = inodes_.attributes(inode);
                if (told && told->size == target.size()) {
                    answer->link(target);
                } else {
                    // Another link by now. At this error the kernel looks the name up again.
                    inodes_.detach(inode);
                    answer->error(ESTALE);
                }
            }
        }));
}

void Operations::statfs(ReplyPtr reply, InodeId inode) {
    const auto path = inodes_.path(inode);
    if (!path) {
        reply->error(ESTALE);
        return;
    }
    tell_space(reply, *path);
}

void Operations::tell_space(const ReplyPtr& reply, const std::string& path) {
    cache_.get(
        {.kind = ObjectKind::space, .path = path},
        answering(reply, [this, path](const ReplyPtr& answer, const ObjectPtr& object) {
            const FilesystemSpace* space = object->space();
            if (space == nullptr && object->error() == std::errc::no_such_file_or_directory && path != "/") {
                tell_space(answer, std::string(parent_path(path)));  // the snapshot still has it
                return;
            }
            if (space == nullptr) {
                answer->error(to_errno(object->error()));
                return;
            }
            struct statvfs told {};
            told.f_bsize = space->block_bytes;
            told.f_frsize = space->fragment_bytes;
            told.f_blocks = space->blocks;
            told.f_bfree = space->free;
            told.f_bavail = space->available;
            told.f_files = space->files;
            told.f_ffree = space->free_files;
            told.f_namemax = space->name_bytes_max;
            answer->statistics(told);
        }));
}

}  // namespace copper
