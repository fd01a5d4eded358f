// Reads the backing filesystem into objects.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "cache/backing_counters.hpp"
#include "cache/extent_memory.hpp"
#include "cache/filesystem_clock.hpp"
#include "cache/listed_directories.hpp"
#include "cache/mount_table.hpp"
#include "cache/object.hpp"
#include "cache/path_opener.hpp"
#include "cache/trees.hpp"

namespace copper {

class OpenFiles;
class Stater;

// Thread-safe. Blocks as long as the filesystem does.
class BackingStore {
  public:
    virtual ~BackingStore() = default;

    // Never fails: an error is an Object.
    //
    // An error may be this node's trouble, and so may an empty directory, or an entry that is absent: where a
    // filesystem was not mounted when the daemon started, its mount point is there and empty, and no store
    // can tell. A second node must find the same before it becomes what all nodes see.
    virtual ObjectPtr read(const ObjectKey& key) = 0;

    // Lets go of what is kept open of `path` and below, so that later reads see the filesystem's present
    // state. REQUIRED of whoever drops a path from the caches, for a refresh.
    virtual void forget(std::string_view path) { static_cast<void>(path); }
};

// POSIX. A file's bytes are checked to be of one Version: its identity is taken before and after the read,
// and a file that changed meanwhile is read again. What keeps changing is served as a reader of the
// filesystem itself would have seen it, and is not kept. What did not change, but cannot be proven to be of
// one Version (see FilesystemClocks), is kept for 2 seconds. Listings are checked in the same way. Files of
// several extents stay open between their extents, so that each is opened once.
class PosixBacking final : public BackingStore {
  public:
    // Operations within `trees` are counted apart from those outside.
    explicit PosixBacking(Trees trees, PathOpener::Method method = PathOpener::detect(),
                          std::shared_ptr<ExtentMemory> memory = ExtentMemory::make(),
                          PathOpener::Links links = PathOpener::Links::follow);
    ~PosixBacking() override;

    ObjectPtr read(const ObjectKey& key) override;
    void forget(std::string_view path) override;

    const BackingCounters& within_trees() const { return within_trees_; }
    const BackingCounters& outside_trees() const { return outside_trees_; }

  private:
    BackingCounters& counters_of(std::string_view path);
    ObjectPtr make_entry(Listing::NewEntry entry);
    Listing make_listing(std::vector<SystemResult<Listing::NewEntry>> entries);
    std::optional<std::chrono::milliseconds> lifetime_in(const std::string& directory);
    ListedDirectories::Found list_directory(const std::string& path);
    ListedDirectories::Found find_names(const ObjectKey& key);
    ObjectPtr read_directory(const std::string& path);
    ObjectPtr read_piece(const ObjectKey& key);
    tl::expected<std::vector<DirectoryName>, ObjectPtr> batch_names(const ObjectKey& key);
    ObjectPtr read_batch(const ObjectKey& key);
    ObjectPtr read_entry(const std::string& path);
    ObjectPtr read_extent(const ObjectKey& key);
    ObjectPtr read_xattrs(const std::string& path);
    ObjectPtr read_xattr_batch(const ObjectKey& key);

    const Trees trees_;
    const std::shared_ptr<ExtentMemory> memory_;
    MountTable mounts_;
    PathOpener opener_;
    BackingCounters within_trees_;
    BackingCounters outside_trees_;
    FilesystemClocks clocks_;
    std::unique_ptr<OpenFiles> open_files_;
    ListedDirectories listed_;
    std::unique_ptr<Stater> stater_;
};

}  // namespace copper
