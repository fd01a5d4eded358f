// readdir, readdirplus. (opendir is answered ENOSYS: see dispatch.cpp.)
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "fuse/fuse_api.hpp"
#include "fuse/operations.hpp"

namespace copper {
namespace {

// One reply's worth of entries, in the kernel's layout. libfuse's functions for it take a request but do not
// use it.
class EntryBuffer {
  public:
    EntryBuffer(std::size_t bytes_max, Operations::Entries entries) : buffer_(bytes_max), entries_(entries) {}

    bool has_room_for(const std::string& name) const {
        return encode(nullptr, 0, name, nullptr, 0) <= left();
    }

    // Node 0: name and type alone, no attributes; the kernel then asks by name for what it needs. `next` is
    // the offset from which the kernel goes on. REQUIRES: has_room_for(name).
    void add(const std::string& name, NodeId node, const struct stat& st, std::uint64_t next) {
        fuse_entry_param entry{};
        entry.ino = node;
        entry.attr = st;
        entry.attr_timeout = kernel_keeps_seconds;
        entry.entry_timeout = kernel_keeps_seconds;
        used_ += encode(buffer_.data() + used_, left(), name, &entry, next);
    }

    iovec piece() { return {.iov_base = buffer_.data(), .iov_len = used_}; }

  private:
    std::size_t left() const { return buffer_.size() - used_; }

    std::size_t encode(char* to, std::size_t bytes_max, const std::string& name,
                       const fuse_entry_param* entry, std::uint64_t next) const {
        const auto offset = static_cast<off_t>(next);
        if (entries_ == Operations::Entries::with_attributes) {
            return fuse_add_direntry_plus(nullptr, to, bytes_max, name.c_str(), entry, offset);
        }
        const struct stat* st = entry != nullptr ? &entry->attr : nullptr;
        return fuse_add_direntry(nullptr, to, bytes_max, name.c_str(), st, offset);
    }

    std::vector<char> buffer_;
    const Operations::Entries entries_;
    std::size_t used_ = 0;
};

// Offsets count the entries passed: ".", "..", then the Listing's. A Listing does not change, so they mean
// the same in every request, and nothing is kept between two of them.
constexpr std::uint64_t dot_entries = 2;

struct stat type_and_number(std::uint64_t inode, std::uint32_t mode) {
    struct stat st {};
    st.st_ino = inode;
    st.st_mode = mode;
    return st;
}

}  // namespace

void Operations::answer_directory(const ReplyPtr& reply, NodeId node, DirectoryRange range,
                                  const ObjectPtr& object) {
    const Listing* listing = object->listing();
    if (listing == nullptr) {
        // The directory has been opened, so it was there. ENOENT would look like its end to programs (POSIX:
        // readdir of a removed directory finds nothing), an empty directory.
        const int error = to_errno(object->error());
        reply->error(error == ENOENT ? ESTALE : error);
        return;
    }
    EntryBuffer buffer(range.bytes_max, range.entries);
    std::uint64_t at = range.offset;
    for (; at < dot_entries; ++at) {
        const std::string name = at == 0 ? "." : "..";
        if (!buffer.has_room_for(name)) {
            break;
        }
        const auto place = inodes_.place(node);
        const NodeId meant = at == 0 || !place ? node : place->parent;
        buffer.add(name, 0, type_and_number(inodes_.inode_number(meant), S_IFDIR), at + 1);
    }
    // Lookups are counted only of what there is room for: the kernel forgets only what it has received.
    std::vector<NodeId> counted;
    for (; at >= dot_entries && at < listing->size() + dot_entries; ++at) {
        const Listing::Entry entry = listing->at(at - dot_entries);
        const std::string name(entry.name);
        if (!buffer.has_room_for(name)) {
            break;
        }
        std::optional<InodeTable::Told> told;
        if (range.entries == Entries::with_attributes && listing->has_attributes()) {
            told = inodes_.look_up(node, name, attributes_told(entry));
        }
        if (told) {
            counted.push_back(told->node);
            buffer.add(name, told->node, to_stat(told->attributes), at + 1);
        } else {
            buffer.add(name, 0, type_and_number(entry.attributes.inode, entry.attributes.mode), at + 1);
        }
    }
    const iovec piece = buffer.piece();
    if (reply->bytes({&piece, 1}) == Sent::no) {
        for (const NodeId child : counted) {
            inodes_.forget(child, 1);
        }
    }
}

void Operations::readdir(ReplyPtr reply, NodeId node, DirectoryRange range) {
    ++counters_.readdir;
    const auto path = inodes_.path(node);
    if (!path) {
        reply->error(ESTALE);
        return;
    }
    counters_.hot_paths.count(*path, {});
    const bool begins = range.offset == 0 && options_.trees.contains(*path);
    cache_.get({.kind = ObjectKind::listing, .path = *path},
               answering(std::move(reply), [this, node, range, begins, path = *path](
                                               const ReplyPtr& answer, const ObjectPtr& object) {
                   if (begins) {
                       walk_.listed(path, object);
                   }
                   answer_directory(answer, node, range, object);
               }));
}

}  // namespace copper
