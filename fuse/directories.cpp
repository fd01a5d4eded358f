// readdir, readdirplus. (opendir gets ENOSYS: see dispatch.cpp.)
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/path.hpp"
#include "cache/names.hpp"
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

    // Inode 0 means name and type without attributes; the kernel then looks up the names it needs. `next`:
    // the offset at which the kernel goes on. REQUIRES: has_room_for(name).
    void add(const std::string& name, InodeId inode, const struct stat& st, std::uint64_t next) {
        fuse_entry_param entry{};
        entry.ino = inode;
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

// Offsets count the entries passed: ".", "..", then the directory's names. Between two requests, it may have
// got other names (a refresh), so the upper bits of an offset tell which ones it counts. Those of names in
// one piece have 31 bits: a program of 32 bits may know no larger ones.
constexpr std::uint64_t dot_entries = 2;
constexpr unsigned tag_shift = 32;
constexpr std::uint64_t tag_mask = 0x7fffffff;  // the kernel's offsets are signed
constexpr unsigned tag_shift_of_one_piece = 12;
constexpr std::uint64_t tag_mask_of_one_piece = 0x7ffff;
static_assert(dot_entries + piece_entries < 1U << tag_shift_of_one_piece);

std::uint64_t tag_of(const Directory& directory) {
    return directory.has_all_names() ? std::max<std::uint64_t>(directory.version & tag_mask_of_one_piece, 1)
                                           << tag_shift_of_one_piece
                                     : std::max<std::uint64_t>(directory.version & tag_mask, 1) << tag_shift;
}

std::uint64_t position_of(std::uint64_t offset) {
    const unsigned shift = offset >> tag_shift != 0 ? tag_shift : tag_shift_of_one_piece;
    return offset & ((std::uint64_t{1} << shift) - 1);
}

// How many pieces to fetch ahead of a program that lists a huge directory.
constexpr std::uint32_t pieces_ahead = 2;

struct stat type_and_number(std::uint64_t number, std::uint32_t mode) {
    struct stat st {};
    st.st_ino = number;
    st.st_mode = mode;
    return st;
}

}  // namespace

std::uint64_t Operations::DirectoryRequest::entries_passed() const {
    const std::uint64_t position = position_of(range.offset);
    return position - std::min(position, dot_entries);
}

// The attributes that the cache has, to tell the kernel with the names: those of a batch, or of one name
// that a program of any node asked for, or the job before.
class Operations::KnownAttributes {
  public:
    KnownAttributes(Cache& cache, const DirectoryRequest& request, const ObjectPtr& directory)
        : cache_(cache), request_(request), directory_(directory) {}

    // Valid until the next call.
    std::optional<Listing::Entry> find(std::uint64_t position, const std::string& name) {
        if (request_.range.entries == Entries::names) {
            return std::nullopt;
        }
        const ObjectKey key =
            batch_key(ObjectKind::batch, request_.path, {.directory = directory_, .position = position});
        if (key.index != index_) {
            index_ = key.index;
            batch_ = cache_.use(key);
        }
        if (const auto found = told_by(batch_, name)) {
            return found;
        }
        entry_ = cache_.use(entry_key(request_.path, name));
        return told_by(entry_, name);
    }

  private:
    static std::optional<Listing::Entry> told_by(const ObjectPtr& object, std::string_view name) {
        return object != nullptr ? object->entry(name) : std::nullopt;
    }

    Cache& cache_;
    const DirectoryRequest& request_;
    const ObjectPtr& directory_;
    std::optional<std::uint32_t> index_;
    ObjectPtr batch_;
    ObjectPtr entry_;
};

// `names` are those of the directory from the `first` one on; the reply has none from `end` on.
void Operations::answer_names(const ReplyPtr& reply, const DirectoryRequest& request,
                              const ObjectPtr& directory, const Listing& names, std::uint64_t first,
                              std::uint64_t end) {
    const auto& [inode, range, path, asked, attempts] = request;
    EntryBuffer buffer(range.bytes_max, range.entries);
    const std::uint64_t tag = tag_of(*directory->directory());
    std::uint64_t at = position_of(range.offset);
    for (; at < dot_entries; ++at) {
        const std::string name = at == 0 ? "." : "..";
        if (!buffer.has_room_for(name)) {
            break;
        }
        const auto place = inodes_.place(inode);
        const InodeId meant = at == 0 || !place ? inode : place->parent;
        const auto told = inodes_.told(meant);
        buffer.add(name, 0, type_and_number(told ? told->number : 0, S_IFDIR), at + 1);
    }
    // Count lookups only for entries that fit: the kernel forgets only those that it received.
    std::vector<InodeId> counted;
    const NumberSpace numbers = inodes_.numbers(inode);
    KnownAttributes known(cache_, request, directory);
    for (; at >= dot_entries && at - dot_entries < end; ++at) {
        const std::uint64_t position = at - dot_entries;
        const Listing::Entry entry = names.at(position - first);
        const std::string name(entry.name);
        if (!buffer.has_room_for(name)) {
            break;
        }
        std::optional<InodeTable::Told> told;
        // The next lookup of an unsettled name finds out more than a listing knows.
        const bool is_unsettled =
            !unsettled_.is_empty() && unsettled_.contains(join_path(request.path, name));
        if (const auto whole = is_unsettled ? std::nullopt : known.find(position, name)) {
            told = look_up(inode, name, asked, *whole);
        }
        if (told) {
            if (!filled_.is_empty()) {
                note_use_of_filled(join_path(request.path, name), told->attributes);
            }
            counted.push_back(told->inode);
            buffer.add(name, told->inode, to_stat(*told), tag | (at + 1));
        } else {
            const auto number = numbers.number(entry.attributes.inode);
            buffer.add(name, 0, type_and_number(number, entry.attributes.mode), tag | (at + 1));
        }
    }
    const iovec piece = buffer.piece();
    if (reply->bytes({&piece, 1}) == Sent::no) {
        for (const InodeId child : counted) {
            inodes_.forget(child, 1);
        }
    }
    if (directory->lifetime) {
        notices_.content(inode);
    }
}

void Operations::answer_directory(const ReplyPtr& reply, const DirectoryRequest& request,
                                  const ObjectPtr& object) {
    const Directory* directory = object->directory();
    if (directory == nullptr) {
        // The directory has been opened, so it was there. ENOENT would look like its end to programs (POSIX:
        // readdir of a removed directory finds nothing), an empty directory.
        const int error = to_errno(object->error());
        reply->error(error == ENOENT ? ESTALE : error);
        return;
    }
    const std::uint64_t passed = request.entries_passed();
    const std::uint64_t tag = request.range.offset - position_of(request.range.offset);
    if (passed == 0) {
        begun_.add(request.path, object);
    }
    if (passed > 0 && tag != tag_of(*directory)) {
        const auto begun =
            begun_.find(request.path, [tag](const Directory& one) { return tag_of(one) == tag; });
        if (begun != nullptr) {
            answer_directory(reply, request, begun);
        } else {
            reply->error(ESTALE);  // it counts names that are no longer available
        }
    } else if (passed >= directory->entries) {
        answer_names(reply, request, object, Listing(), passed, passed);
    } else {
        answer_piece(reply, request, object);
    }
}

void Operations::answer_piece(const ReplyPtr& reply, const DirectoryRequest& request,
                              const ObjectPtr& directory) {
    const auto number = static_cast<std::uint32_t>(request.entries_passed() / piece_entries);
    get_piece(
        cache_, request.path, directory, number,
        answering(reply, [this, request, directory, number](const ReplyPtr& answer, const Piece& piece) {
            if (piece.names != nullptr) {
                tell_names(answer, request, directory, piece, number);
            } else if (request.attempts == 0) {
                answer->error(ESTALE);
            } else {
                DirectoryRequest again = request;
                --again.attempts;
                answer_directory(answer, again, piece.holder);
            }
        }));
    const Directory& names = *directory->directory();
    for (std::uint32_t ahead = 1; ahead <= pieces_ahead && number + ahead < names.first_names.size();
         ++ahead) {
        cache_.get({.kind = ObjectKind::names,
                    .path = request.path,
                    .index = number + ahead,
                    .version = names.version},
                   [](const ObjectPtr&) {});
    }
}

// Where the filesystem answers at once, the kernel is told the attributes with the names: a program that
// wants them needs no request for each.
void Operations::tell_names(const ReplyPtr& reply, const DirectoryRequest& request,
                            const ObjectPtr& directory, const Piece& piece, std::uint32_t number) {
    const std::uint64_t first = std::uint64_t{number} * piece_entries;
    const std::uint64_t end = first + piece.names->size();
    const bool wants_attributes = request.range.entries == Entries::with_attributes &&
                                  BatchEvidence::is_worth_batch_at_once(*directory->directory());
    if (!wants_attributes) {
        answer_names(reply, request, directory, *piece.names, first, end);
        return;
    }
    const Present place{.directory = directory, .position = request.entries_passed()};
    // With the first names, the kernel always asks for attributes; with others, if programs use them.
    if (place.position > 0) {
        fetch_next_batch(cache_, ObjectKind::batch, request.path, place);
    }
    const std::uint64_t next_batch = (place.position / batch_entries + 1) * batch_entries;
    cache_.get(batch_key(ObjectKind::batch, request.path, place),
               answering(reply, [this, request, directory, piece, first, end = std::min(end, next_batch)](
                                    const ReplyPtr& answer, const ObjectPtr&) {
                   answer_names(answer, request, directory, *piece.names, first, end);
               }));
}

void Operations::readdir(ReplyPtr reply, InodeId inode, DirectoryRange range) {
    ++counters_.readdir;
    const auto path = inodes_.path(inode);
    if (!path) {
        reply->error(ESTALE);
        return;
    }
    counters_.hot_paths.count(*path, {});
    const bool begins = range.offset == 0 && options_.trees.contains(*path);
    cache_.get({.kind = ObjectKind::directory, .path = *path},
               answering(std::move(reply),
                         [this, begins,
                          request =
                              DirectoryRequest{
                                  .inode = inode, .range = range, .path = *path, .asked = inodes_.doubts()}](
                             const ReplyPtr& answer, const ObjectPtr& object) {
                             if (begins) {
                                 walk_.listed(request.path, object);
                             }
                             answer_directory(answer, request, object);
                         }));
}

}  // namespace copper
