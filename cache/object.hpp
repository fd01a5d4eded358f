// What Copper caches and moves: immutable objects, each named by a key.
//
// All types here are values without threads or I/O. An Object never changes after its construction, so
// threads share it freely as an ObjectPtr.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace copper {

// How many bytes of a file one Extent holds. Extent i starts at byte i * extent_bytes.
inline constexpr std::uint64_t extent_bytes = 1U << 20;

// How many extents a file has.
constexpr std::uint64_t extents_of(std::uint64_t file_bytes) {
    return file_bytes / extent_bytes + (file_bytes % extent_bytes != 0 ? 1 : 0);
}

// An object travels whole, so it has at most this many bytes, plus a few that describe an extent.
inline constexpr std::size_t object_bytes_max = extent_bytes;

// A large file has several readers, each of which reads whole stripes. The first stripe, which is all that a
// smaller file has, belongs to the reader of its file tree.
inline constexpr std::uint32_t first_stripe_extents = 16;
inline constexpr std::uint32_t stripe_extents = 4;
// So many extents on their way from each reader keep them all busy, on 1,024 nodes (copper_scale
// --large-file).
inline constexpr std::uint32_t ahead_of_a_reader_extents = 4 * stripe_extents;

// The names of a directory travel in pieces of so many, the attributes of its entries alone or in batches.
inline constexpr std::size_t piece_entries = 2048;
inline constexpr std::size_t batch_entries = 512;
inline constexpr std::uint64_t directory_entries_max = 1U << 24;

struct Timestamp {
    std::int64_t seconds = 0;
    std::uint32_t nanoseconds = 0;
    auto operator<=>(const Timestamp&) const = default;
};

// The result of lstat(2) for one path, in its units (size in bytes, blocks of 512 bytes).
struct Attributes {
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    std::uint64_t blocks = 0;
    std::uint64_t device = 0;  // st_rdev, for device files
    std::uint32_t mode = 0;    // type and permission bits
    std::uint32_t links = 0;
    std::uint32_t user = 0;
    std::uint32_t group = 0;
    std::uint32_t block_bytes = 0;
    Timestamp accessed = {};
    Timestamp modified = {};
    Timestamp changed = {};
    bool operator==(const Attributes&) const = default;
};

// Bytes of a file for which its filesystem has allocated nothing. 0, as for most files: it has no holes.
constexpr std::uint64_t bytes_not_allocated(const Attributes& attributes) {
    constexpr std::uint64_t block = 512;
    return attributes.blocks > attributes.size / block ? 0 : attributes.size - attributes.blocks * block;
}

// Identifies a file's content: two reads with equal Versions saw the same bytes.
struct Version {
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    Timestamp modified = {};
    Timestamp changed = {};
    bool operator==(const Version&) const = default;
};

Version version_of(const Attributes& attributes);

// Never 0. The same on all processes and machines (xxh3).
std::uint64_t hash_of(const Version& version);

// Bytes with shared ownership: received, cached, forwarded and sent to the kernel from one place in memory.
struct Blob {
    std::shared_ptr<const std::byte[]> data;
    std::size_t size = 0;
    // checksum_of() the bytes if somebody has computed it; otherwise 0.
    std::uint64_t checksum = 0;

    std::span<const std::byte> span() const { return {data.get(), size}; }
};

Blob copy_to_blob(std::span<const std::byte> bytes);
std::uint64_t checksum_of(const Blob& blob);

// Names, with or without attributes, sorted by name (as bytes). Depending on the key it is one piece of a
// directory's names, one batch of its entries, or the single entry of one path (empty if there is none).
class Listing {
  public:
    struct Entry {
        std::string_view name;
        // Of a symbolic link, as the backing filesystem has it. Empty if that refuses to tell it (EPERM).
        std::string_view target;
        Attributes attributes;  // without has_attributes(): only `inode` and the type bits of `mode`
        bool leads_into_trees;  // the target is absolute and lies in a tree
        // It lies on another filesystem than its directory: inode numbers of the two may be equal.
        bool begins_filesystem;
    };

    // REQUIRES: distinct names of at most 255 bytes.
    struct NewEntry {
        std::string name;
        std::string target;
        Attributes attributes;
        bool leads_into_trees = false;
        bool begins_filesystem = false;
    };
    // names_only keeps only name, inode and type.
    enum class Detail : std::uint8_t { names_only, attributes };
    Listing() = default;  // no names
    Listing(std::vector<NewEntry> entries, Detail detail);

    std::size_t size() const { return slots_.size(); }
    // These return views into this Listing.
    Entry at(std::size_t index) const;
    std::string_view name(std::size_t index) const { return name_of(slots_[index]); }

    std::optional<std::size_t> find(std::string_view name) const;
    // The first name that does not sort before `name`; size() if there is none.
    std::size_t first_from(std::string_view name) const;
    bool has_attributes() const { return detail_ == Detail::attributes; }
    std::size_t bytes() const;

  private:
    struct Slot {
        std::uint32_t text_offset = 0;
        std::uint16_t target_bytes = 0;
        std::uint8_t name_bytes = 0;
        bool leads_into_trees : 1 = false;
        bool begins_filesystem : 1 = false;
    };
    struct InodeAndType {
        std::uint64_t inode = 0;
        std::uint32_t mode = 0;
    };
    std::string_view name_of(const Slot& slot) const {
        return {text_.data() + slot.text_offset, slot.name_bytes};
    }

    std::vector<Slot> slots_;
    std::vector<Attributes> attributes_;  // one per slot, or, without attributes:
    std::vector<InodeAndType> inodes_;
    std::string text_;  // name, then target, of each slot
    Detail detail_ = Detail::names_only;
};

// The names of a directory: it answers for each name whether it is there. If they fit into one piece, that is
// part of it; otherwise it tells which piece holds a name, if any does.
struct Directory {
    // Of all names and types; never 0. A piece or a batch of another version belongs to another Directory.
    std::uint64_t version = 1;
    std::uint64_t entries = 0;
    std::vector<std::string> first_names;  // of each piece: piece_entries entries, in the last one the rest
    Listing names;                         // the only piece; empty if there are several
    // If not, a name that moved while the directory was read may be missing, or a mount in it is gone. This
    // stays true whatever the directory answers; how long an answer is kept is Object::lifetime.
    bool is_proven = true;
    // How long the reader waits for one operation on its filesystem, as far as it knew when it listed.
    std::chrono::microseconds operation_time{0};
    bool is_serial = false;  // the filesystem looks up one name at a time in a directory

    // Nothing: the name sorts before all others, so it is absent.
    std::optional<std::uint32_t> piece_of(std::string_view name) const;
    bool has_all_names() const { return entries == names.size(); }
    // REQUIRES: there is such a piece.
    std::size_t entries_of(std::uint32_t piece) const;
    // Whether these names can be that piece.
    bool fits(std::uint32_t piece, const Listing& piece_names) const;
    std::size_t bytes() const;
};

// How an Extent stores its bytes.
enum class Coding : std::uint8_t {
    plain,
    lz4,    // in blocks: cache/codec.hpp
    zeros,  // all bytes are 0, so none are stored
};

// Bytes [offset, offset + plain_bytes) of a file. Only the last extent of a file is shorter than
// extent_bytes.
struct Extent {
    Attributes attributes;  // of the file when it was read
    Blob blob;              // as sent and kept
    Coding coding = Coding::plain;
    std::size_t plain_bytes = blob.size;
};

// Where a file has data. What lies between are holes: a read gives zeros there. A node asks for the map at
// the first search for a hole or data, and before the first read if the holes may be as large as an extent.
struct DataMap {
    struct Segment {
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        bool operator==(const Segment&) const = default;
    };
    // The last one of a file with more reaches to the end of the file: a hole may count as data.
    static constexpr std::size_t segments_max = 4096;

    Attributes attributes;          // of the file when it was read
    std::vector<Segment> segments;  // in order, none of them empty, with a hole between any two

    // The first byte of data from `offset`, the first byte of a hole from there, or the end of the file.
    std::uint64_t data_from(std::uint64_t offset) const;
    std::uint64_t hole_from(std::uint64_t offset) const;
    // Of extent `extent` of the file.
    bool has_data(std::uint32_t extent) const;
    bool operator==(const DataMap&) const = default;
};

// What statvfs(3) says of the filesystem of a path, in its units.
struct FilesystemSpace {
    std::uint64_t block_bytes = 0;
    std::uint64_t fragment_bytes = 0;  // of the blocks that are counted
    std::uint64_t blocks = 0;
    std::uint64_t free = 0;
    std::uint64_t available = 0;
    std::uint64_t files = 0;
    std::uint64_t free_files = 0;
    std::uint64_t name_bytes_max = 0;
    bool operator==(const FilesystemSpace&) const = default;
};

using Xattrs = std::vector<std::pair<std::string, std::string>>;

// Extended attributes of a batch of names of a directory. Most names have none.
struct XattrBatch {
    struct Entry {
        std::string name;
        // Nothing: the reader could not read them in this batch, or they did not fit. Ask for this path
        // alone.
        std::optional<Xattrs> xattrs;
        bool operator==(const Entry&) const = default;
    };
    std::vector<Entry> entries;  // sorted by name; a name of the batch that is not among them has none
    bool operator==(const XattrBatch&) const = default;
};

// An error of the backing filesystem (std::generic_category, an errno value) is content like any other, with
// a short life.
using Content =
    std::variant<std::error_code, Listing, Extent, Xattrs, Directory, XattrBatch, DataMap, FilesystemSpace>;

struct Object {
    Content content;
    // How long a cache may answer with it. Nothing: as long as the job runs (the snapshot).
    std::optional<std::chrono::milliseconds> lifetime;
    // If not, it is what this node alone has found, perhaps because of its own mount. Never on the wire.
    bool is_for_others = true;

    const Listing* listing() const { return std::get_if<Listing>(&content); }
    // What a Listing has of this name. Valid while this object lives.
    std::optional<Listing::Entry> entry(std::string_view name) const;
    const Extent* extent() const { return std::get_if<Extent>(&content); }
    const Xattrs* xattrs() const { return std::get_if<Xattrs>(&content); }
    const Directory* directory() const { return std::get_if<Directory>(&content); }
    const XattrBatch* xattr_batch() const { return std::get_if<XattrBatch>(&content); }
    const DataMap* data_map() const { return std::get_if<DataMap>(&content); }
    const FilesystemSpace* space() const { return std::get_if<FilesystemSpace>(&content); }
    // The error, or a zero code.
    std::error_code error() const;
    // Its size in memory, for the cache's accounting.
    std::size_t bytes() const;
};

// The heap memory of an allocation: glibc's malloc adds 8 bytes and rounds up to 16.
constexpr std::size_t allocated_bytes(std::size_t bytes) {
    constexpr std::size_t header = 8, unit = 16, least = 32;
    return std::max((bytes + header + unit - 1) / unit * unit, least);
}

using ObjectPtr = std::shared_ptr<const Object>;

inline constexpr std::chrono::milliseconds error_lifetime{1000};
// For a directory that is not proven, for what nobody has confirmed, and for what always changes.
inline constexpr std::chrono::milliseconds doubtful_lifetime{2000};

ObjectPtr make_object(Content content, std::optional<std::chrono::milliseconds> lifetime = std::nullopt);
// A directory's own object: for as long as the job runs, if it is proven.
ObjectPtr make_directory(Directory directory);
ObjectPtr make_error(std::errc error);
ObjectPtr make_error(int error_number);

enum class ObjectKind : std::uint8_t {
    directory,  // path: a directory. Content: Directory
    batch,   // path: a directory; index: entries [index * batch_entries, ...) of its names. Content: Listing,
             // without those that are gone
    entry,   // path: anything. Content: Listing of one entry, or of none where the path does not exist
    extent,  // path: a file; index: which extent. Content: Extent
    xattrs,  // path: anything. Content: Xattrs; or the error ENOTSUP, as long as the job runs
    names,   // path: a directory with several pieces; index: which one. Content: Listing without attributes
    xattr_batch,  // as batch. Content: XattrBatch; or ENOTSUP for all
    acl,          // path: anything; index: an AclType. Content: Xattrs with that list, or without; or ENOTSUP
    acl_batch,    // as xattr_batch, of access lists alone; or ENOTSUP for all
    data_map,     // path: a file. Content: DataMap
    space,        // path: anything. Content: FilesystemSpace, for doubtful_lifetime
    own_extent,   // an extent of a file that each node reads for itself; never on the wire
};
inline constexpr ObjectKind last_shared_object_kind = ObjectKind::space;

// Access control lists are asked for by name: not every filesystem lists them (MooseFS does not).
enum class AclType : std::uint32_t { access, defaults };
inline constexpr std::array<const char*, 2> acl_names = {"system.posix_acl_access",
                                                         "system.posix_acl_default"};

struct ObjectKey {
    ObjectKind kind = ObjectKind::directory;
    std::string path;
    std::uint32_t index = 0;
    // Of an extent or a data map: the hash of the Version that is wanted, 0 for any. Where the file is of
    // another one by now, that one's are the answer, with their Attributes and a short life. Of names and of
    // batches: Directory::version. Where the directory has other names by now, the answer has a short life,
    // too: to names it is the directory's own object, to a batch the error EAGAIN.
    std::uint64_t version = 0;
    std::uint64_t generation = 0;  // see Generations
    auto operator<=>(const ObjectKey&) const = default;
};

// The directory of the object's file tree. Readers are elected per file tree, and per stripe of a large file.
std::string_view file_tree_of(const ObjectKey& key);

// Which stripe of its file an extent belongs to. 0, also for any other object: it goes with its file tree.
constexpr std::uint32_t stripe_of(const ObjectKey& key) {
    const bool is_of_file_tree = key.kind != ObjectKind::extent || key.index < first_stripe_extents;
    return is_of_file_tree ? 0 : (key.index - first_stripe_extents) / stripe_extents + 1;
}

std::string to_string(const ObjectKey& key);

// The same on all processes and machines (xxh3).
std::uint64_t hash_of(const ObjectKey& key);

struct ObjectKeyHash {
    std::size_t operator()(const ObjectKey& key) const { return static_cast<std::size_t>(hash_of(key)); }
};

}  // namespace copper
