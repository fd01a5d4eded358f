// What the mirror answers: one method for each request of the kernel, grouped in files by what they are
// about.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/cache.hpp"
#include "cache/extent_memory.hpp"
#include "cache/resolve.hpp"
#include "cache/siblings.hpp"
#include "cache/walk.hpp"
#include "cache/xattr_resolver.hpp"
#include "fuse/counters.hpp"
#include "fuse/inode_table.hpp"
#include "fuse/passthrough.hpp"
#include "fuse/reply.hpp"
#include "fuse/session.hpp"

namespace copper {

// What the kernel is told without having asked. Called with no lock held, from any thread: also from those
// that deliver objects, which must not wait for the kernel.
struct KernelNotices {
    // What it knows of a file's attributes is out of date.
    std::function<void(NodeId)> attributes;
    // The bytes of a file, or the names of a directory, that it has just been told have a short life.
    std::function<void(NodeId)> content;
    // What it knows under a name is out of date. `then` runs once, when it has dropped that.
    std::function<void(NodeId parent, const std::string& name, std::function<void()> then)> name;
};

// Thread-safe. Handlers never block: they ask the cache with a continuation that replies. No lock is held
// while they reply. `cache` and `counters` must outlive it, and it must outlive every Reply that begin()s.
//
// A frozen snapshot lets the kernel keep everything for ever. What it still asks for each time, because it
// has no way to remember the answer, is extended attributes and ioctl.
class Operations {
  public:
    Operations(SessionOptions options, Cache& cache, FuseCounters& counters, KernelNotices notices,
               std::span<std::byte> inodes);  // what an InodeTable keeps

    // names.cpp
    void lookup(ReplyPtr reply, NodeId parent, std::string_view name);
    void forget(NodeId node, std::uint64_t lookups);
    void getattr(ReplyPtr reply, NodeId node);
    void readlink(ReplyPtr reply, NodeId node);
    void statfs(ReplyPtr reply);

    // directories.cpp
    enum class Entries { names, with_attributes };
    struct DirectoryRange {
        std::size_t bytes_max = 0;
        std::uint64_t offset = 0;  // as given with the last entry that the kernel has
        Entries entries = Entries::names;
    };
    void readdir(ReplyPtr reply, NodeId node, DirectoryRange range);

    // files.cpp
    struct FileRange {
        std::uint64_t offset = 0;
        std::size_t bytes = 0;
    };
    void read(ReplyPtr reply, NodeId node, FileRange range);
    // Asked only if it passes_through().
    void open(const ReplyPtr& reply, NodeId node);
    void release(NodeId node);

    // xattrs.cpp; bytes_max 0 asks for the size.
    void getxattr(ReplyPtr reply, NodeId node, std::string name, std::size_t bytes_max);
    void listxattr(ReplyPtr reply, NodeId node, std::size_t bytes_max);

    // Before the first request but INIT. Null: files are not passed through.
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

    std::string target_told(const Listing::Entry& entry) const;
    Attributes attributes_told(const Listing::Entry& entry) const;
    void answer_lookup(const ReplyPtr& reply, NodeId parent, const std::string& name,
                       const Resolution& resolution);
    // What a readdir has got to know so far.
    struct DirectoryRequest {
        NodeId node = 0;
        DirectoryRange range;
        std::string path;
        int attempts = 2;  // to begin anew with names that the directory has by now

        std::uint64_t entries_passed() const;
    };
    void answer_directory(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& object);
    class KnownAttributes;
    void answer_piece(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& directory);
    void tell_names(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& directory,
                    const Piece& piece, std::uint32_t number);
    void answer_names(const ReplyPtr& reply, const DirectoryRequest& request, const ObjectPtr& directory,
                      const Listing& names, std::uint64_t first);
    ObjectKey extent_key(std::string path, const Attributes& told, Source source) const;
    void begin_read(const ReplyPtr& reply, NodeId node, FileRange range, Attempt attempt);
    void fetch_ahead(NodeId node, ObjectKey key, ExtentRange read, std::uint64_t file_bytes);
    void answer_read(const ReplyPtr& reply, const PendingRead& pending);
    void find_version(const ReplyPtr& reply, NodeId node, ObjectKey key, const Attributes& found,
                      int attempts);
    void supersede(const ReplyPtr& reply, NodeId node, const Attributes& attributes);

    const SessionOptions options_;
    Cache& cache_;
    FuseCounters& counters_;
    const KernelNotices notices_;
    InodeTable inodes_;
    Siblings siblings_;
    EntryResolver entries_;
    XattrResolver xattrs_;
    std::unique_ptr<Passthrough> passthrough_;                            // constant once requests are served
    const std::shared_ptr<ExtentMemory> decoded_ = ExtentMemory::make();  // while it is replied
    Walk walk_;
};

struct stat to_stat(const Attributes& attributes);

// The errno value for the kernel: fuse/ is the only place that makes one.
int to_errno(const std::error_code& error);

}  // namespace copper
