// read; open and release where files are passed through. (Elsewhere open is answered ENOSYS, and flush
// everywhere; locks stay in the kernel: see dispatch.cpp.)
//
// All bytes that the kernel gets of one inode are of one Version. The file may have changed between the
// Listing that the kernel's attributes came from and the Extents that are read later. If the kernel has no
// bytes yet, whatever version is found becomes the inode's, and the kernel is told that its attributes are
// out of date; that takes no page lock, so it may be done while a read waits. If the kernel has bytes, those
// of another version would mix with them in its page cache, so the read fails with ESTALE, as NFS would say
// it, and the name gets a new inode: who opens the file again reads the other version.
//
// A reply may hold more bytes than the size that the kernel knows: the kernel reads whole pages, and those of
// a file that has grown must not be filled up with zeros.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <vector>

#include "cache/codec.hpp"
#include "fuse/operations.hpp"

namespace copper {

using SteadyClock = std::chrono::steady_clock;

// How often a read whose extents turn out to be of several Versions is begun.
constexpr int read_attempts_max = 3;

// Collects the extents of one read. Each is set by one thread; the one that sets the last answers.
class Operations::PendingRead {
  public:
    PendingRead(NodeId node, std::string path, FileRange range, std::uint64_t epoch, Attempt attempt,
                std::size_t extents)
        : node(node),
          path(std::move(path)),
          range(range),
          epoch(epoch),
          attempt(attempt),
          objects(extents),
          missing_(extents) {}

    // True for the last one.
    [[nodiscard]] bool set(std::size_t index, const ObjectPtr& object) {
        objects[index] = object;
        return missing_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    const NodeId node;
    const std::string path;
    const FileRange range;
    const std::uint64_t epoch;
    const Attempt attempt;
    std::vector<ObjectPtr> objects;

  private:
    std::atomic<std::size_t> missing_;
};

namespace {

struct Pieces {
    std::vector<iovec> bytes;
    std::vector<PlainBytes> kept;  // what `bytes` points to
};

// The pieces of memory that hold `range`, which starts in the first of `objects`. Ends early where the file
// does. Nothing if an extent cannot be decoded.
std::optional<Pieces> pieces_of(const std::vector<ObjectPtr>& objects, Operations::FileRange range,
                                ExtentMemory& memory) {
    Pieces pieces;
    std::size_t skip = range.offset % extent_bytes;
    std::size_t left = range.bytes;
    for (const auto& object : objects) {
        const Extent& extent = *object->extent();
        if (extent.plain_bytes > skip && left > 0) {
            auto plain = read_plain(extent, skip, left, memory);
            if (!plain) {
                return std::nullopt;
            }
            // The kernel only reads from it: iovec has no const.
            pieces.bytes.push_back(
                {.iov_base = const_cast<std::byte*>(plain->bytes.data()), .iov_len = plain->bytes.size()});
            left -= plain->bytes.size();
            pieces.kept.push_back(std::move(*plain));
        }
        if (extent.plain_bytes < extent_bytes) {
            break;
        }
        skip = 0;
    }
    return pieces;
}

// The error of one of a read's objects; 0 if there is none.
int error_of(const std::vector<ObjectPtr>& objects) {
    for (const auto& object : objects) {
        if (object->extent() == nullptr) {
            return to_errno(object->error());
        }
    }
    return 0;
}

bool are_of_one_version(const std::vector<ObjectPtr>& objects) {
    return std::all_of(objects.begin(), objects.end(), [&](const ObjectPtr& object) {
        return version_of(object->extent()->attributes) == version_of(objects.front()->extent()->attributes);
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

const Attributes& of_another_version(const std::vector<ObjectPtr>& objects, const Attributes& than) {
    const auto is_another = [&than](const ObjectPtr& object) {
        return version_of(object->extent()->attributes) != version_of(than);
    };
    return (*std::find_if(objects.begin(), objects.end(), is_another))->extent()->attributes;
}

}  // namespace

void Operations::answer_read(const ReplyPtr& reply, const PendingRead& pending) {
    if (const int error = error_of(pending.objects)) {
        reply->error(error);
        return;
    }
    const Attributes& found = newest(pending.objects);
    // The kernel let the caller in by the rights that it knows. The daemon may read what the caller may not:
    // with other rights, or as another file under that name, the kernel is to look again. (With one user the
    // filesystem itself has judged.)
    const auto told = inodes_.attributes(pending.node);
    if (options_.audience == Audience::everyone && !(told && have_same_rights(*told, found))) {
        supersede(reply, pending.node, found);
        return;
    }
    const bool is_whole = are_of_one_version(pending.objects);
    const auto pieces = is_whole ? pieces_of(pending.objects, pending.range, *decoded_) : Pieces();
    if (!pieces) {
        begin_read(reply, pending.node, pending.range,
                   {.number = pending.attempt.number, .source = Source::own});
        return;
    }
    const auto verdict = inodes_.hand_out(
        pending.node, found, pieces->bytes.empty() ? InodeTable::Bytes::none : InodeTable::Bytes::some);
    if (verdict == InodeTable::Verdict::mixed) {
        supersede(reply, pending.node, found);
        return;
    }
    if (verdict == InodeTable::Verdict::adopted) {
        notices_.attributes(pending.node);
    }
    if (!is_whole) {
        if (pending.attempt.number < read_attempts_max) {
            begin_read(reply, pending.node, pending.range,
                       {.number = pending.attempt.number + 1, .source = pending.attempt.source});
        } else {
            supersede(reply, pending.node, of_another_version(pending.objects, found));
        }
        return;
    }
    std::uint64_t bytes = 0;
    for (const auto& piece : pieces->bytes) {
        bytes += piece.iov_len;
    }
    counters_.bytes_read += bytes;
    counters_.hot_paths.count(pending.path, {.bytes_read = bytes});
    reply->bytes(pieces->bytes);
}

void Operations::supersede(const ReplyPtr& reply, NodeId node, const Attributes& attributes) {
    const auto place = inodes_.supersede(node, attributes);
    if (!place) {
        reply->error(ESTALE);
        return;
    }
    // Answered when a new opening finds the new node.
    notices_.name(place->parent, place->name, [reply] {
        if (reply->begin()) {
            reply->error(ESTALE);
            reply->end();
        }
    });
}

void Operations::read(ReplyPtr reply, NodeId node, FileRange range) {
    ++counters_.read;
    walk_.file_read();
    begin_read(reply, node, range, {});
}

ObjectKey Operations::extent_key(std::string path, const std::optional<Attributes>& told,
                                 Source source) const {
    const bool is_shared =
        source == Source::shared && (!told || told->size <= options_.shared_file_bytes_max);
    return {.kind = is_shared ? ObjectKind::extent : ObjectKind::own_extent,
            .path = std::move(path),
            .version = told ? hash_of(version_of(*told)) : 0};
}

void Operations::begin_read(const ReplyPtr& reply, NodeId node, FileRange range, Attempt attempt) {
    const std::uint64_t epoch = inodes_.epoch();
    const auto path = inodes_.path(node);
    if (!path) {
        reply->error(ESTALE);
        return;
    }
    const std::uint64_t first = range.offset / extent_bytes;
    std::uint64_t last = (range.offset + std::max<std::size_t>(range.bytes, 1) - 1) / extent_bytes;
    const auto told = inodes_.attributes(node);
    if (told) {
        // Nothing is asked for beyond the end that the kernel knows.
        last = std::min(last, std::max(first, (std::max<std::uint64_t>(told->size, 1) - 1) / extent_bytes));
        if (range.offset > 0 && range.offset >= told->size) {
            range.bytes = 0;
        }
    }
    if (range.bytes == 0 || last > std::numeric_limits<std::uint32_t>::max()) {
        reply->bytes({});
        return;
    }
    const auto arrived = SteadyClock::now();
    const auto pending = std::make_shared<PendingRead>(node, *path, range, epoch, attempt, last - first + 1);
    ObjectKey key = extent_key(*path, told, attempt.source);
    for (std::uint64_t index = first; index <= last; ++index) {
        key.index = static_cast<std::uint32_t>(index);
        cache_.get(key, [this, reply, pending, position = index - first, arrived](const ObjectPtr& object) {
            if (!pending->set(position, object) || !reply->begin()) {
                return;
            }
            if (inodes_.epoch() == pending->epoch) {
                answer_read(reply, *pending);
                counters_.read_latency.record(SteadyClock::now() - arrived);
            } else {
                // A refresh came in between: these bytes may be of before it.
                begin_read(reply, pending->node, pending->range, pending->attempt);
            }
            reply->end();
        });
    }
    if (told) {
        fetch_ahead(node, key, {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last + 1)},
                    told->size);
    }
}

void Operations::fetch_ahead(NodeId node, ObjectKey key, ExtentRange read, std::uint64_t file_bytes) {
    const auto extents = static_cast<std::uint32_t>(extents_of(file_bytes));
    if (extents <= 1) {
        return;
    }
    const auto ahead = inodes_.read_ahead(node, read, extents, cache_.read_ahead_extents());
    for (key.index = ahead.begin; key.index < ahead.end; ++key.index) {
        cache_.get(key, [](const ObjectPtr&) {});
    }
}

void Operations::open(const ReplyPtr& reply, NodeId node) {
    const auto told = inodes_.attributes(node);
    const auto backing = passthrough_->open(node, told ? std::optional(version_of(*told)) : std::nullopt);
    if (!backing) {
        // Open in a version from before a refresh. At this error the kernel looks the name up again, and
        // finds a new inode.
        inodes_.detach(node);
        reply->error(ESTALE);
        return;
    }
    if (*backing != 0) {
        inodes_.hand_out(node, *told, InodeTable::Bytes::some);
    }
    if (reply->opened(*backing) == Sent::no) {
        release(node);
    }
}

void Operations::release(NodeId node) {
    if (passthrough_->close(node) == Passthrough::Next::collect) {
        const auto told = inodes_.attributes(node);
        auto path = inodes_.path(node);
        if (told && path) {
            passthrough_->collect(node, extent_key(std::move(*path), told, Source::shared), *told);
        }
    }
}

}  // namespace copper
