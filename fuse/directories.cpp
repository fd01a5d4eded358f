// readdir, readdirplus. (opendir gets ENOSYS: see dispatch.cpp.)
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "cache/pieces.hpp"
#include "fuse/fuse_api.hpp"
#include "fuse/operations.hpp"

namespace copper {
namespace {

// The entries of one reply, in the kernel's layout. libfuse's functions for that take a request but do not
// use it.
class EntryBuffer {
  public:
    EntryBuffer(std::size_t bytes_max, Operations::Entries entries) : buffer_(bytes_max), entries_(entries) {}

    bool has_room_for(const std::string& name) const {
        return encode(nullptr, 0, name, nullptr, 0) <= left();
    }

    // Node 0 means name and type without attributes; the kernel then looks up the names it needs. `next`: the
    // offset at which the kernel goes on. REQUIRES: has_room_for(name).
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

// Offsets count entries: ".", "..", then those of the Listing. A Listing does not change, so offsets mean the
// same in every request, and the daemon keeps nothing between requests. A huge directory may get other names,
// so the upper half of its offsets tells which names they count.
constexpr std::uint64_t dot_entries = 2;
constexpr unsigned tag_shift = 32;
constexpr std::uint64_t tag_mask = 0x7fffffff;  // the kernel's offsets are signed

std::uint64_t tag_of(const Object& directory) {
    const Index* index = directory.index();
    return index != nullptr ? std::max<std::uint64_t>(index->version & tag_mask, 1) << tag_shift : 0;
}

std::uint64_t position_of(std::uint64_t offset) {
    return offset & ((std::uint64_t{1} << tag_shift) - 1);
}

// How many pieces to fetch ahead of a program that lists a huge directory.
constexpr std::uint32_t pieces_ahead = 2;

struct stat type_and_number(std::uint64_t inode, std::uint32_t mode) {
    struct stat st {};
    st.st_ino = inode;
    st.st_mode = mode;
    return st;
}

}  // namespace

std::uint64_t Operations::DirectoryRequest::entries_passed() const {
    const std::uint64_t position = position_of(range.offset);
    return position - std::min(position, dot_entries);
}

// `entries`: those of the directory, starting with number `first`.
void Operations::answer_entries(const ReplyPtr& reply, const DirectoryRequest& request,
                                const Object& directory, const Listing& entries, std::uint64_t first) {
    const auto& [node, range, path, attempts] = request;
    EntryBuffer buffer(range.bytes_max, range.entries);
    const std::uint64_t tag = tag_of(directory);
    std::uint64_t at = position_of(range.offset);
    for (; at < dot_entries; ++at) {
        const std::string name = at == 0 ? "." : "..";
        if (!buffer.has_room_for(name)) {
            break;
        }
        const auto place = inodes_.place(node);
        const NodeId meant = at == 0 || !place ? node : place->parent;
        buffer.add(name, 0, type_and_number(inodes_.inode_number(meant), S_IFDIR), at + 1);
    }
    // Count lookups only for entries that fit: the kernel forgets only those that it received.
    std::vector<NodeId> counted;
    for (; at >= dot_entries && at - dot_entries < first + entries.size(); ++at) {
        const Listing::Entry entry = entries.at(at - dot_entries - first);
        const std::string name(entry.name);
        if (!buffer.has_room_for(name)) {
            break;
        }
        std::optional<InodeTable::Told> told;
        if (range.entries == Entries::with_attributes && entries.has_attributes()) {
            told = inodes_.look_up(node, name, attributes_told(entry));
        }
        if (told) {
            counted.push_back(told->node);
            buffer.add(name, told->node, to_stat(told->attributes), tag | (at + 1));
        } else {
            buffer.add(name, 0, type_and_number(entry.attributes.inode, entry.attributes.mode),
                       tag | (at + 1));
        }
    }
    const iovec piece = buffer.piece();
    if (reply->bytes({&piece, 1}) == Sent::no) {
        for (const NodeId child : counted) {
            inodes_.forget(child, 1);
        }
    }
}

// From the directory's own object.
void Operations::answer_directory(const ReplyPtr& reply, const DirectoryRequest& request,
                                  const ObjectPtr& directory) {
    const std::uint64_t passed = request.entries_passed();
    const std::uint64_t tag = request.range.offset - position_of(request.range.offset);
    if (directory->error()) {
        // The directory has been opened, so it existed. ENOENT would look to programs like its end (in POSIX,
        // a removed directory reads as empty).
        const int error = to_errno(directory->error());
        reply->error(error == ENOENT ? ESTALE : error);
    } else if (passed > 0 && tag != tag_of(*directory)) {
        reply->error(ESTALE);  // the offset counts names that no longer exist
    } else if (const Listing* listing = directory->listing()) {
        answer_entries(reply, request, *directory, *listing, 0);
    } else if (passed >= directory->index()->entries) {
        answer_entries(reply, request, *directory, Listing({}, Listing::Detail::names_only), passed);
    } else {
        answer_piece(reply, request, directory);
    }
}

void Operations::answer_piece(const ReplyPtr& reply, const DirectoryRequest& request,
                              const ObjectPtr& directory) {
    const Index& index = *directory->index();
    const auto number = static_cast<std::uint32_t>(request.entries_passed() / piece_entries);
    get_piece(
        cache_, request.path, directory, number,
        answering(reply, [this, request, directory, number](const ReplyPtr& answer, const ObjectPtr& object) {
            const Listing* names = object->listing();
            if (names != nullptr && !names->has_attributes()) {
                answer_entries(answer, request, *directory, *names, std::uint64_t{number} * piece_entries);
            } else if (request.attempts == 0) {
                answer->error(ESTALE);
            } else {
                DirectoryRequest again = request;
                --again.attempts;
                answer_directory(answer, again, object);
            }
        }));
    for (std::uint32_t ahead = 1; ahead <= pieces_ahead && number + ahead < index.first_names.size();
         ++ahead) {
        cache_.get({.kind = ObjectKind::names,
                    .path = request.path,
                    .index = number + ahead,
                    .version = index.version},
                   [](const ObjectPtr&) {});
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
    cache_.get(
        {.kind = ObjectKind::listing, .path = *path},
        answering(std::move(reply),
                  [this, begins, request = DirectoryRequest{.node = node, .range = range, .path = *path}](
                      const ReplyPtr& answer, const ObjectPtr& object) {
                      if (begins) {
                          walk_.listed(request.path, object);
                      }
                      answer_directory(answer, request, object);
                  }));
}

}  // namespace copper
