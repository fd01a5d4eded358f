// Large files that the kernel reads without asking: FUSE passthrough.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/guarded.hpp"
#include "base/thread_pool.hpp"
#include "cache/cache.hpp"
#include "fuse/inode_table.hpp"
#include "fuse/local_file.hpp"
#include "fuse/reply.hpp"

namespace copper {

// A file is collected once nobody has it open and the cache holds all of it: it moves into a LocalFile, and
// the cache's Extents point there from then on. So there is one copy. It counts as the cache's, and ends when
// the cache has dropped it and nobody has it open.
//
// Linux demands that all open handles of an inode are alike: through the page cache of FUSE, or from one
// local file (fs/fuse/iomode.c). So the first open decides, until the last close.
//
// Thread-safe: one lock, not held during calls to the kernel. `cache` must outlive this object.
class Passthrough {
  public:
    struct Kernel {
        std::function<BackingId(int file)> add;  // 0: the kernel refuses
        std::function<void(BackingId)> remove;
    };
    // Smaller files take a single request, which the kernel need not repeat.
    static constexpr std::uint64_t file_bytes_min = extent_bytes;
    static constexpr std::size_t files_max = 512;  // each has a descriptor

    // Local files lie in the directory `memory`. Nothing if there is no such directory, or the kernel
    // refuses.
    static std::unique_ptr<Passthrough> start(Cache& cache, UniqueFd memory, Kernel kernel);
    Passthrough(Cache& cache, UniqueFd memory, Kernel kernel);
    ~Passthrough();

    // Counts an open of `inode`. Returns what to answer: a local file, or 0. Returns nothing, and counts
    // nothing, if it is open from a local file of another version.
    std::optional<BackingId> open(InodeId inode, const Version& version);

    enum class Next { collect, nothing };
    // Counts a close. "To be collected" means: nobody has it open, and it has no local file.
    Next close(InodeId inode);

    // Runs in a thread of its own. `key` names any of the file's extents.
    void collect(InodeId inode, const ObjectKey& key, const Attributes& attributes);

    // The kernel no longer knows the inode.
    void forget(InodeId inode);

  private:
    struct Inode {
        std::size_t openings = 0;
        BackingId id = 0;  // of `open`, while anybody has it open that way
        std::shared_ptr<const LocalFile> open;
        std::weak_ptr<const LocalFile> kept;  // by the cache's Extents
    };
    std::shared_ptr<const LocalFile> collected(ObjectKey key, const Attributes& attributes);

    Cache& cache_;
    const UniqueFd memory_;
    const Kernel kernel_;
    Guarded<std::unordered_map<InodeId, Inode>> inodes_;
    std::atomic<bool> ends_ = false;  // the collector stops at once
    ThreadPool collector_{{.threads_max = 1, .queued_max = files_max}};
};

}  // namespace copper
