// read; lseek; open and release for passthrough. (Otherwise open gets ENOSYS, and flush always does. Locks
// stay in the kernel: see dispatch.cpp.)
//
// All bytes that the kernel gets of one inode are of one Version, and that Version has the size that the
// kernel learnt when it looked the name up. But the file may have changed. Then there are three cases. If the
// new Version has another size, the read fails with ESTALE, as on NFS, and the name gets a new inode, so the
// next open reads the new Version. If it has the same size, but the kernel has bytes of the old one, the same
// happens. If it has the same size and the kernel has no bytes, the inode takes the new Version, and the
// kernel is told that its attributes are out of date. That takes no page lock, so it may happen while a read
// waits. While the file changes (EAGAIN), the read fails with ESTALE, too; the next lookup finds out which
// Version the file has by then.
//
// A file with holes of whole extents is read by its DataMap: such holes are answered without an extent.
//
// Why another size needs a new inode: a short reply shrinks the kernel's i_size only if nothing else changed
// the inode's attributes since the request began (fs/fuse/file.c: fuse_read_update_size), which the daemon
// cannot know. Otherwise the kernel pads the page with NULs. A mapping gets NULs in any case. No reply makes
// i_size grow.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <vector>

#include "cache/codec.hpp"
#include "fuse/operations.hpp"

namespace copper {

using SteadyClock = std::chrono::steady_clock;

// How often to start a read again whose extents turn out to be of several Versions.
constexpr int read_attempts_max = 3;

struct Operations::ReadRequest {
    InodeId inode = 0;
    std::string path;
    Attributes told;
    FileRange range;  // not empty, and within the file
    Attempt attempt;
    SteadyClock::time_point arrived = SteadyClock::now();
};

// Collects the extents of one read. Each is set by one thread; the thread that sets the last one answers.
class Operations::PendingRead {
  public:
    PendingRead(const ReadRequest& request, std::optional<Foresight> foresight, std::size_t extents)
        : inode(request.inode),
          path(request.path),
          range(request.range),
          attempt(request.attempt),
          foresight(foresight),
          objects(extents),
          missing_(extents) {}

    // True for the last one.
    [[nodiscard]] bool set(std::size_t index, const ObjectPtr& object) {
        objects[index] = object;
        return missing_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    const InodeId inode;
    const std::string path;
    const FileRange range;
    const Attempt attempt;
    const std::optional<Foresight> foresight;  // of a file's first extent, if it may lead to guesses
    std::vector<ObjectPtr> objects;

  private:
    std::atomic<std::size_t> missing_;
};

namespace {

struct Pieces {
    std::vector<iovec> bytes;
    std::vector<PlainBytes> kept;  // the memory of `bytes`
};

// The pieces of memory that hold `range`, which starts in the first of `objects`. Nothing if an extent cannot
// be decoded. REQUIRES: are_whole(objects, range).
std::optional<Pieces> pieces_of(const std::vector<ObjectPtr>& objects, Operations::FileRange range,
                                ExtentMemory& memory) {
    Pieces pieces;
    std::size_t skip = range.offset % extent_bytes;
    std::size_t left = range.bytes;
    for (const auto& object : objects) {
        auto plain = read_plain(*object->extent(), skip, left, memory);
        if (!plain) {
            return std::nullopt;
        }
        // The kernel only reads from this memory, but iovec has no const.
        pieces.bytes.push_back(
            {.iov_base = const_cast<std::byte*>(plain->bytes.data()), .iov_len = plain->bytes.size()});
        left -= plain->bytes.size();
        pieces.kept.push_back(std::move(*plain));
        skip = 0;
    }
    return pieces;
}

// The extent of a file that has no data there.
ObjectPtr make_hole(const Attributes& attributes, std::uint32_t extent) {
    return make_object(Extent{.attributes = attributes,
                              .blob = {},
                              .coding = Coding::zeros,
                              .plain_bytes = static_cast<std::size_t>(
                                  std::min(extent_bytes, attributes.size - extent * extent_bytes))});
}

// The first error of a read's objects; 0 if there is none.
int error_of(const std::vector<ObjectPtr>& objects) {
    for (const auto& object : objects) {
        if (object->extent() == nullptr) {
            return to_errno(object->error());
        }
    }
    return 0;
}

// Whether all extents are of one Version, and hold as many bytes as a file of its size has there. (A reader
// may get fewer or more from a file that is being written.)
bool are_whole(const std::vector<ObjectPtr>& objects, Operations::FileRange range) {
    const Attributes& attributes = objects.front()->extent()->attributes;
    std::uint64_t offset = range.offset - range.offset % extent_bytes;
    return std::all_of(objects.begin(), objects.end(), [&](const ObjectPtr& object) {
        const Extent& extent = *object->extent();
        const std::uint64_t rest = attributes.size - std::min(attributes.size, offset);
        offset += extent_bytes;
        return version_of(extent.attributes) == version_of(attributes) &&
               extent.plain_bytes == std::min(extent_bytes, rest);
    });
}

bool have_same_rights(const Attributes& a, const Attributes& b) {
    return a.mode == b.mode && a.user == b.user && a.group == b.group;
}

const Attributes& newest(const std::vector<ObjectPtr>& objects) {
    return (*std::max_element(objects.begin(), objects.end(),
                              [](const ObjectPtr& a, const ObjectPtr& b) {
                                  return a->extent()->attributes.changed < b->extent()->attributes.changed;
                              }))
        ->extent()
        ->attributes;
}

}  // namespace

void Operations::answer_read(const ReplyPtr& reply, const PendingRead& pending) {
    if (const int error = error_of(pending.objects); error == EAGAIN) {
        unsettled_.add(pending.path);
        fail_as_stale(reply, inodes_.place(pending.inode));
        return;
    } else if (error != 0) {
        reply->error(error);
        return;
    }
    const Attributes& found = newest(pending.objects);
    // The kernel admitted the caller by the rights that it knows. The daemon may read files that the caller
    // may not read. So if the rights differ, or the name means another file, the kernel must look again.
    // (With one user, the filesystem itself has judged.)
    const auto told = inodes_.attributes(pending.inode);
    if (options_.audience == Audience::everyone && !(told && have_same_rights(*told, found))) {
        supersede(reply, pending.inode, found);
        return;
    }
    const bool is_whole = are_whole(pending.objects, pending.range);
    const auto verdict =
        inodes_.hand_out(pending.inode, found, is_whole ? InodeTable::Bytes::some : InodeTable::Bytes::none);
    if (verdict == InodeTable::Verdict::adopted) {
        notices_.attributes(pending.inode);
    }
    const bool is_last = pending.attempt.number >= read_attempts_max;
    if (verdict == InodeTable::Verdict::other || (!is_whole && is_last)) {
        find_version(reply, pending.inode, extent_key(pending.path, found, pending.attempt.source), found,
                     read_attempts_max);
        return;
    }
    if (!is_whole) {
        begin_read(reply, pending.inode, pending.range,
                   {.number = pending.attempt.number + 1, .source = pending.attempt.source});
        return;
    }
    const auto pieces = pieces_of(pending.objects, pending.range, *decoded_);
    if (!pieces) {
        begin_read(reply, pending.inode, pending.range,
                   {.number = pending.attempt.number, .source = Source::own});
        return;
    }
    counters_.bytes_read += pending.range.bytes;
    counters_.hot_paths.count(pending.path, {.bytes_read = pending.range.bytes});
    reply->bytes(pieces->bytes);
    if (std::any_of(pending.objects.begin(), pending.objects.end(),
                    [](const ObjectPtr& object) { return object->lifetime.has_value(); })) {
        notices_.content(pending.inode);
    }
}

// The version found may be out of date if somebody is writing the file. The next open asks for the version
// that the name has then, so find out which one that is.
void Operations::find_version(const ReplyPtr& reply, InodeId inode, ObjectKey key, const Attributes& found,
                              int attempts) {
    key.version = hash_of(version_of(found));
    cache_.get(
        key, answering(reply, [this, inode, key, found, attempts](const ReplyPtr& answer,
                                                                  const ObjectPtr& object) {
            const Extent* extent = object->extent();
            if (object->error() == std::errc::resource_unavailable_try_again) {
                unsettled_.add(key.path);
            }
            if (extent == nullptr || attempts <= 1 || version_of(extent->attributes) == version_of(found)) {
                supersede(answer, inode, extent != nullptr ? extent->attributes : found);
            } else {
                find_version(answer, inode, key, extent->attributes, attempts - 1);
            }
        }));
}

void Operations::supersede(const ReplyPtr& reply, InodeId inode, const Attributes& attributes) {
    fail_as_stale(reply, inodes_.supersede(inode, attributes));
}

// Replies only when the next open will look the name up.
void Operations::fail_as_stale(const ReplyPtr& reply, const std::optional<InodeTable::Place>& place) {
    if (!place || place->name.empty()) {
        reply->error(ESTALE);
        return;
    }
    notices_.name(place->parent, place->name, [reply] {
        if (reply->begin()) {
            reply->error(ESTALE);
            reply->end();
        }
    });
}

// Its bytes belong to the inode's version, like those that programs get.
void Operations::answer_known_read(const ReplyPtr& reply, InodeId inode, FileRange range) {
    const auto path = inodes_.path(inode);
    const auto told = inodes_.attributes(inode);
    range.bytes = told ? std::min(range.bytes, told->size - std::min(told->size, range.offset)) : 0;
    if (!path || range.bytes == 0) {
        reply->error(EAGAIN);
        return;
    }
    ObjectKey key = extent_key(*path, *told, Source::shared);
    std::vector<ObjectPtr> objects;
    for (std::uint64_t at = range.offset / extent_bytes; at * extent_bytes < range.offset + range.bytes;
         ++at) {
        key.index = static_cast<std::uint32_t>(at);
        const bool is_used = !filled_.add(*path, key.index);
        counters_.files_read += is_used && range.offset == 0 ? 1 : 0;
        auto object = is_used ? cache_.use(key) : cache_.find(cache_.current(key));
        if (object == nullptr || object->extent() == nullptr || object->lifetime) {
            reply->error(EAGAIN);
            return;
        }
        objects.push_back(std::move(object));
    }
    const Attributes& found = objects.front()->extent()->attributes;
    const bool is_right =
        are_whole(objects, range) && version_of(found) == version_of(*told) &&
        have_same_rights(found, *told) &&
        inodes_.hand_out(inode, found, InodeTable::Bytes::some) == InodeTable::Verdict::current;
    const auto pieces = is_right ? pieces_of(objects, range, *decoded_) : std::nullopt;
    if (!pieces) {
        reply->error(EAGAIN);
        return;
    }
    counters_.bytes_filled += range.bytes;
    reply->bytes(pieces->bytes);
}

void Operations::read(ReplyPtr reply, InodeId inode, FileRange range, By by) {
    if (by == By::page_filler) {
        answer_known_read(reply, inode, range);
        return;
    }
    ++counters_.read;
    if (range.offset == 0) {
        ++counters_.files_read;
    }
    walk_.file_read();
    begin_read(reply, inode, range, {});
}

ObjectKey Operations::extent_key(std::string path, const Attributes& told, Source source) const {
    const bool is_shared = source == Source::shared && told.size <= options_.shared_file_bytes_max;
    return {.kind = is_shared ? ObjectKind::extent : ObjectKind::own_extent,
            .path = std::move(path),
            .version = hash_of(version_of(told))};
}

void Operations::begin_read(const ReplyPtr& reply, InodeId inode, FileRange range, Attempt attempt) {
    const auto path = inodes_.path(inode);
    const auto told = inodes_.attributes(inode);
    if (!path || !told) {
        reply->error(ESTALE);
        return;
    }
    // Ask for nothing beyond the end that the kernel knows.
    range.bytes = std::min(range.bytes, told->size - std::min(told->size, range.offset));
    if (range.bytes == 0) {
        reply->bytes({});
        return;
    }
    if ((range.offset + range.bytes - 1) / extent_bytes > std::numeric_limits<std::uint32_t>::max()) {
        reply->error(EFBIG);
        return;
    }
    const ReadRequest request{
        .inode = inode, .path = *path, .told = *told, .range = range, .attempt = attempt};
    if (bytes_not_allocated(*told) < extent_bytes) {
        read_extents(reply, request, nullptr);
        return;
    }
    find_data(reply, *path, *told, [this, request](const ReplyPtr& answer, const DataMap* map) {
        read_extents(answer, request, map);
    });
}

// Null: there may be data everywhere.
void Operations::read_extents(const ReplyPtr& reply, const ReadRequest& request, const DataMap* map) {
    const auto& [inode, path, told, range, attempt, arrived] = request;
    const auto first = static_cast<std::uint32_t>(range.offset / extent_bytes);
    const auto last = static_cast<std::uint32_t>((range.offset + range.bytes - 1) / extent_bytes);
    ObjectKey key = extent_key(path, told, attempt.source);
    key.index = first;
    const bool may_lead_to_guesses = range.offset == 0 && options_.trees.contains(path);
    const auto pending = std::make_shared<PendingRead>(
        request, may_lead_to_guesses ? std::optional(cache_.foresight(key)) : std::nullopt,
        last - first + 1U);
    for (std::size_t position = 0; position < pending->objects.size(); ++position) {
        key.index = first + static_cast<std::uint32_t>(position);
        const auto arrive = [this, reply, pending, position, arrived = arrived](const ObjectPtr& object) {
            if (!pending->set(position, object) || !reply->begin()) {
                return;
            }
            answer_read(reply, *pending);
            counters_.read_latency.record(SteadyClock::now() - arrived);
            if (pending->foresight) {
                guesses_.read(pending->path, pending->objects.front(), *pending->foresight);
            }
            reply->end();
        };
        if (map != nullptr && !map->has_data(key.index)) {
            arrive(make_hole(told, key.index));
        } else {
            cache_.get(key, arrive);
        }
    }
    fetch_ahead(inode, key, {first, last + 1}, told, map);
}

// Null: there may be data everywhere. Whatever goes wrong shows when the bytes are read.
void Operations::find_data(const ReplyPtr& reply, const std::string& path, const Attributes& told,
                           WithMap then) {
    const ObjectKey key{.kind = ObjectKind::data_map, .path = path, .version = hash_of(version_of(told))};
    cache_.get(key, answering(reply, [version = version_of(told), then = std::move(then)](
                                         const ReplyPtr& answer, const ObjectPtr& object) {
                   const DataMap* map = object->data_map();
                   then(answer, map != nullptr && version_of(map->attributes) == version ? map : nullptr);
               }));
}

void Operations::seek(const ReplyPtr& reply, InodeId inode, std::int64_t offset, Sought sought) {
    const auto path = inodes_.path(inode);
    const auto told = inodes_.attributes(inode);
    if (!path || !told) {
        reply->error(ESTALE);
        return;
    }
    const auto from = static_cast<std::uint64_t>(offset);
    if (offset < 0 || from >= told->size) {
        reply->error(ENXIO);
        return;
    }
    const std::uint64_t unless_known = sought == Sought::data ? from : told->size;
    if (bytes_not_allocated(*told) == 0) {
        reply->position(unless_known);
        return;
    }
    find_data(reply, *path, *told,
              [this, inode, from, sought, unless_known](const ReplyPtr& answer, const DataMap* map) {
                  // The program takes holes for bytes that it has read, so the inode must not take another
                  // version.
                  const auto verdict = map != nullptr
                                           ? inodes_.hand_out(inode, map->attributes, InodeTable::Bytes::some)
                                           : InodeTable::Verdict::other;
                  if (verdict == InodeTable::Verdict::other) {
                      answer->position(unless_known);
                      return;
                  }
                  if (verdict == InodeTable::Verdict::adopted) {
                      notices_.attributes(inode);
                  }
                  const std::uint64_t found =
                      sought == Sought::data ? map->data_from(from) : map->hole_from(from);
                  if (sought == Sought::data && found == map->attributes.size) {
                      answer->error(ENXIO);
                  } else {
                      answer->position(found);
                  }
              });
}

void Operations::fetch_ahead(InodeId inode, ObjectKey key, ExtentRange read, const Attributes& told,
                             const DataMap* map) {
    const auto extents = static_cast<std::uint32_t>(extents_of(told.size));
    if (extents <= 1) {
        return;
    }
    const auto ahead = inodes_.read_ahead(inode, read, extents, cache_.read_ahead_extents(key.kind));
    for (key.index = ahead.begin; key.index < ahead.end; ++key.index) {
        if (map == nullptr || map->has_data(key.index)) {
            cache_.get(
                key, [](const ObjectPtr&) {}, FetchFor::guess);
        }
    }
}

void Operations::open(const ReplyPtr& reply, InodeId inode) {
    const auto told = inodes_.attributes(inode);
    const auto backing = told ? passthrough_->open(inode, version_of(*told)) : std::nullopt;
    if (backing && *backing != 0 &&
        inodes_.hand_out(inode, *told, InodeTable::Bytes::some) == InodeTable::Verdict::other) {
        release(inode);
    } else if (backing) {
        if (reply->opened(*backing) == Sent::no) {
            release(inode);
        }
        return;
    }
    // The inode has taken another version meanwhile. On this error, the kernel looks the name up again and
    // finds a new inode.
    inodes_.detach(inode);
    reply->error(ESTALE);
}

void Operations::release(InodeId inode) {
    if (passthrough_->close(inode) == Passthrough::Next::collect) {
        const auto told = inodes_.attributes(inode);
        auto path = inodes_.path(inode);
        if (told && path) {
            passthrough_->collect(inode, extent_key(std::move(*path), *told, Source::shared), *told);
        }
    }
}

}  // namespace copper
