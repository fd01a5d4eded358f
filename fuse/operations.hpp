// The mirror's answers: one method per request of the kernel, in several files by subject.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/cache.hpp"
#include "cache/entry_resolver.hpp"
#include "cache/extent_memory.hpp"
#include "cache/guesses/guesses.hpp"
#include "cache/walk.hpp"
#include "cache/xattr_resolver.hpp"
#include "fuse/begun_listings.hpp"
#include "fuse/counters.hpp"
#include "fuse/filled_files.hpp"
#include "fuse/inode_table.hpp"
#include "fuse/passthrough.hpp"
#include "fuse/reply.hpp"
#include "fuse/session.hpp"
#include "fuse/unsettled_names.hpp"

namespace copper {

// Notices to the kernel. Called without a lock, from any thread, including threads that deliver objects.
// Those must not wait for the kernel.
struct KernelNotices {
    // Its attributes of a file are out of date.
    std::function<void(InodeId)> attributes;
    // The bytes of a file, or the names of a directory, that it has just been told have a short life.
    std::function<void(InodeId)> content;
    // What it knows under a name is out of date. `then` runs once, when it has dropped that.
    std::function<void(InodeId parent, const std::string& name, std::function<void()> then)> name;
};

// Thread-safe. Handlers never block: they ask the cache with a continuation that replies. They hold no lock
// while they reply. `cache` and `counters` must outlive this object, and this object must outlive every Reply
// that begin()s.
//
// A frozen snapshot lets the kernel keep everything for ever. The kernel cannot keep extended attributes and
// ioctl, so it asks for them each time.
class Operations {
  public:
    Operations(SessionOptions options, Cache& cache, FuseCounters& counters, KernelNotices notices,
               std::span<std::byte> inodes);  // the memory of an InodeTable

    // Who asks. The page filler has the kernel keep bytes before programs ask for them
    // (daemon/page_filler.hpp). It gets what this node knows of the trees, or EAGAIN: nothing is fetched for
    // it, so nobody waits behind it. The kernel does not keep the names that it looks up, so a program's
    // first use of each is seen.
    enum class By { program, page_filler };

    // names.cpp
    void lookup(ReplyPtr reply, InodeId parent, std::string_view name, By by = By::program);
    void forget(InodeId inode, std::uint64_t lookups);
    void getattr(ReplyPtr reply, InodeId inode);
    void readlink(ReplyPtr reply, InodeId inode);
    void statfs(ReplyPtr reply, InodeId inode);

    // directories.cpp
    enum class Entries { names, with_attributes };
    struct DirectoryRange {
        std::size_t bytes_max = 0;
        std::uint64_t offset = 0;  // the offset of the last entry that the kernel has
        Entries entries = Entries::names;
    };
    void readdir(ReplyPtr reply, InodeId inode, DirectoryRange range);

    // files.cpp
    struct FileRange {
        std::uint64_t offset = 0;
        std::size_t bytes = 0;
    };
    void read(ReplyPtr reply, InodeId inode, FileRange range, By by = By::program);
    // SEEK_DATA and SEEK_HOLE of lseek(2).
    enum class Sought { data, hole };
    void seek(const ReplyPtr& reply, InodeId inode, std::int64_t offset, Sought sought);
    // Called only if passes_through().
    void open(const ReplyPtr& reply, InodeId inode);
    void release(InodeId inode);

    // xattrs.cpp; bytes_max 0 asks for the size.
    void getxattr(ReplyPtr reply, InodeId inode, std::string name, std::size_t bytes_max);
    void listxattr(ReplyPtr reply, InodeId inode, std::size_t bytes_max);

    // Call it before any request but INIT. Null: no passthrough.
    void use(std::unique_ptr<Passthrough> passthrough) { passthrough_ = std::move(passthrough); }
    bool passes_through() const { return passthrough_ != nullptr; }

    InodeTable& inodes() { return inodes_; }
    FuseCounters& counters() { return counters_; }

  private:
    class PendingRead;
    enum class Source { shared, own };  // own: shared bytes could not be decoded, so this node reads them
    struct Attempt {
        int number = 1;
        Source source = Source::shared;
    };

    void tell_space(const ReplyPtr& reply, const std::string& path);
    std::string target_told(const Listing::Entry& entry) const;
    Attributes attributes_told(const Listing::Entry& entry) const;
    // The state of a lookup.
    struct LookupRequest {
        InodeId parent = 0;
        std::string path;
        std::uint64_t asked = 0;  // InodeTable::doubts(), when it began
    };
    std::optional<InodeTable::Told> look_up(InodeId parent, std::string_view name, std::uint64_t asked,
                                            const Listing::Entry& entry);
    void repeat_attributes(const ReplyPtr& reply, InodeId inode);
    void note_use_of_filled(const std::string& path, const Attributes& told);
    void answer_lookup(const ReplyPtr& reply, const LookupRequest& request, const Resolution& resolution);
    void answer_unsettled_lookup(const ReplyPtr& reply, const LookupRequest& request,
                                 const Resolution& resolution);
    void answer_known_lookup(const ReplyPtr& reply, const LookupRequest& request);
    // The state of a readdir.
    struct DirectoryRequest {
        InodeId inode = 0;
        DirectoryRange range;
        std::string path;
        std::uint64_t asked = 0;  // as of a lookup
        int attempts = 2;         // to start again if the directory has other names

        std::uint64_t entries_passed() const;
    };
    void answer_directory(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& object);
    class KnownAttributes;
    void answer_piece(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& directory);
    void tell_names(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& directory,
                    const Piece& piece, std::uint32_t number);
    void answer_names(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& directory,
                      const Listing& names, std::uint64_t first, std::uint64_t end);
    ObjectKey extent_key(std::string path, const Attributes& told, Source source) const;
    void begin_read(const ReplyPtr& reply, InodeId inode, FileRange range, Attempt attempt);
    void answer_known_read(const ReplyPtr& reply, InodeId inode, FileRange range);
    struct ReadRequest;
    void read_extents(const ReplyPtr& reply, const ReadRequest& request, const DataMap* map);
    void fetch_ahead(InodeId inode, ObjectKey key, ExtentRange read, const Attributes& told,
                     const DataMap* map);
    using WithMap = std::function<void(const ReplyPtr&, const DataMap*)>;
    void find_data(const ReplyPtr& reply, const std::string& path, const Attributes& told, WithMap then);
    void answer_read(const ReplyPtr& reply, const PendingRead& pending);
    void find_version(const ReplyPtr& reply, InodeId inode, ObjectKey key, const Attributes& found,
                      int attempts);
    void supersede(const ReplyPtr& reply, InodeId inode, const Attributes& attributes);
    void fail_as_stale(const ReplyPtr& reply, const std::optional<InodeTable::Place>& place);

    const SessionOptions options_;
    Cache& cache_;
    FuseCounters& counters_;
    const KernelNotices notices_;
    InodeTable inodes_;
    Guesses guesses_;
    EntryResolver entries_;
    XattrResolver xattrs_;
    std::unique_ptr<Passthrough> passthrough_;                            // constant once requests are served
    const std::shared_ptr<ExtentMemory> decoded_ = ExtentMemory::make();  // during the reply
    Walk walk_;
    BegunListings begun_;
    UnsettledNames unsettled_;
    FilledFiles filled_;
};

struct stat to_stat(const InodeTable::Told& told);

// The errno value for the kernel. Only fuse/ makes errno values.
int to_errno(const std::error_code& error);

}  // namespace copper
